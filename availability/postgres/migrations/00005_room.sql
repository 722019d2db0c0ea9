-- +goose Up
-- +goose StatementBegin

-- availability_room returns done if a mitra may have one session more, else inactive or full. It
-- locks the mitra's state, and then reads everything where it is stored: the sessions in their
-- table, is_active in its own, the limit in app_config. So rows that no trigger saw count, and a
-- lowered limit applies from its commit. The caller's limit, which may be older, applies if it is
-- lower, or if app_config has none that makes sense.
CREATE OR REPLACE FUNCTION availability_room(mitra uuid, known integer) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  active boolean;
  busy bigint;
  most integer;
BEGIN
  PERFORM FROM mitra_availability a WHERE a.mitra_id = mitra FOR NO KEY UPDATE;
  IF NOT FOUND THEN -- the mitra came while triggers were off
    INSERT INTO mitra_availability (mitra_id, is_active)
      SELECT m.id, coalesce(m.is_active, false) FROM mitras m WHERE m.id = mitra
    ON CONFLICT (mitra_id) DO NOTHING;
    PERFORM FROM mitra_availability a WHERE a.mitra_id = mitra FOR NO KEY UPDATE;
  END IF;
  -- A statement of its own: it sees what was committed while the lock was waited for.
  SELECT m.is_active,
         (SELECT count(*) FROM chat_sessions c
           WHERE c.mitra_id = mitra AND c.status IN ('active', 'pending_payment')),
         least(known, (SELECT min(btrim(s.value::text, E' \t\n\r')::integer) FROM app_config s
           WHERE s.key = 'max_customers_per_mitra'
             AND btrim(s.value::text, E' \t\n\r') ~ '^(0|[1-9][0-9]{0,7}|100000000)$'))
    INTO active, busy, most FROM mitras m WHERE m.id = mitra;
  RETURN CASE WHEN active IS NOT TRUE THEN 'inactive' WHEN busy >= most THEN 'full' ELSE 'done' END;
END $$;

-- One that the mitra has accepted already is done.
CREATE OR REPLACE FUNCTION availability_accept(session uuid, mitra uuid, most integer)
RETURNS TABLE (outcome text, state mitra_availability_state) LANGUAGE plpgsql AS $$
DECLARE
  present chat_sessions.status%TYPE;
  holder uuid;
BEGIN
  PERFORM FROM mitras m WHERE m.id = mitra FOR KEY SHARE;
  IF FOUND THEN
    SELECT c.status, c.mitra_id INTO present, holder
      FROM chat_sessions c WHERE c.id = session FOR NO KEY UPDATE;
  END IF;
  IF NOT FOUND THEN
    outcome := 'unknown';
  ELSIF present = 'active' AND holder = mitra THEN
    outcome := 'done';
  ELSIF present IS DISTINCT FROM 'searching' THEN
    outcome := 'taken';
  ELSE
    outcome := availability_room(mitra, most);
    IF outcome = 'done' THEN
      UPDATE chat_sessions c SET status = 'active', mitra_id = mitra WHERE c.id = session;
    END IF;
  END IF;
  RETURN QUERY SELECT outcome, v FROM (SELECT) AS once
    LEFT JOIN mitra_availability_state v ON v.mitra_id = mitra;
END $$;

-- One row changes hands, so that nobody ever sees the session with both mitras, or with none. One
-- that the mitra has already is done.
CREATE OR REPLACE FUNCTION availability_reroute(session uuid, mitra uuid, most integer)
RETURNS TABLE (outcome text, status text, state mitra_availability_state) LANGUAGE plpgsql AS $$
DECLARE
  present chat_sessions.status%TYPE;
  holder uuid;
BEGIN
  PERFORM FROM mitras m WHERE m.id = mitra FOR KEY SHARE;
  IF FOUND THEN
    SELECT c.status, c.mitra_id INTO present, holder
      FROM chat_sessions c WHERE c.id = session FOR NO KEY UPDATE;
  END IF;
  IF NOT FOUND THEN
    outcome := 'unknown';
  ELSIF present IN ('active', 'pending_payment') THEN
    PERFORM FROM mitra_availability a WHERE a.mitra_id IN (holder, mitra)
      ORDER BY a.mitra_id FOR NO KEY UPDATE;
    outcome := CASE WHEN holder = mitra THEN 'done' ELSE availability_room(mitra, most) END;
    IF outcome = 'done' AND holder IS DISTINCT FROM mitra THEN
      UPDATE chat_sessions c SET mitra_id = mitra WHERE c.id = session;
    END IF;
  ELSE
    outcome := 'taken';
  END IF;
  RETURN QUERY SELECT outcome, present::text, v FROM (SELECT) AS once
    LEFT JOIN mitra_availability_state v ON v.mitra_id IN (holder, mitra);
END $$;

-- TRUNCATE names no rows: all is counted anew. It also removes rows that are newer than what a
-- transaction of a stricter isolation sees, and whose states that transaction cannot see either.
CREATE OR REPLACE FUNCTION availability_of_truncate() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE feature_not_supported USING
      MESSAGE = format('TRUNCATE of %I in a transaction that is %s would leave states of availability wrong',
        TG_TABLE_NAME, current_setting('transaction_isolation')),
      HINT = 'Truncate in a transaction that is READ COMMITTED.';
  END IF;
  PERFORM availability_repair();
  RETURN NULL;
END $$;
DO $$
BEGIN
  EXECUTE format('ALTER FUNCTION availability_of_truncate() SET search_path = %I, pg_temp', current_schema());
END $$;

-- +goose StatementEnd

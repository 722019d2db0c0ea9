-- +goose Up
-- +goose StatementBegin

-- Each writer is one statement for its caller. Its last step reads the states, under the locks that
-- it holds: what it returns is what is committed.
--
-- The order of locks, each by id: mitras (as foreign keys lock them), mitra_online_status,
-- chat_sessions, auth_sessions, mitra_availability. Whatever a writer will lock it locks before its
-- first change. So writers never wait for each other in a circle.
--
-- outcome is one of: done; unknown, there is no such mitra or session; taken, full, inactive.
-- Nothing is changed unless it is done. States are returned also of a refusal: the caller expected
-- others. The state is null in the only row if there is none.

CREATE FUNCTION availability_set_online(mitra uuid, want boolean)
RETURNS TABLE (outcome text, state mitra_availability_state) LANGUAGE plpgsql AS $$
DECLARE
  active boolean;
  was boolean;
  moment timestamptz;
  word mitra_online_logs.status%TYPE := CASE WHEN want THEN 'online' ELSE 'offline' END;
BEGIN
  SELECT m.is_active INTO active FROM mitras m WHERE m.id = mitra FOR KEY SHARE;
  IF NOT FOUND THEN
    outcome := 'unknown';
    RETURN NEXT;
    RETURN;
  END IF;
  outcome := CASE WHEN want AND active IS NOT TRUE THEN 'inactive' ELSE 'done' END;
  IF outcome = 'done' THEN
    SELECT s.is_online INTO was FROM mitra_online_status s WHERE s.mitra_id = mitra FOR NO KEY UPDATE;
    IF want AND NOT FOUND THEN
      INSERT INTO mitra_online_status (mitra_id, is_online) VALUES (mitra, false)
        ON CONFLICT (mitra_id) DO NOTHING;
      SELECT s.is_online INTO was FROM mitra_online_status s WHERE s.mitra_id = mitra FOR NO KEY UPDATE;
    END IF;
    moment := clock_timestamp(); -- after all waiting
    IF want THEN
      UPDATE mitra_online_status s
         SET is_online = true, last_heartbeat_at = moment,
             last_online_at = CASE WHEN was THEN s.last_online_at ELSE moment END, updated_at = moment
       WHERE s.mitra_id = mitra;
    ELSIF was THEN
      UPDATE mitra_online_status s SET is_online = false, last_offline_at = moment, updated_at = moment
       WHERE s.mitra_id = mitra;
    END IF;
    IF want <> coalesce(was, false) THEN
      INSERT INTO mitra_online_logs (mitra_id, status, created_at) VALUES (mitra, word, moment);
    END IF;
  END IF;
  RETURN QUERY SELECT outcome, v FROM mitra_availability_state v WHERE v.mitra_id = mitra;
END $$;

-- Who is deactivated is signed out as well.
CREATE FUNCTION availability_set_active(mitra uuid, want boolean)
RETURNS TABLE (outcome text, state mitra_availability_state) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM mitras m WHERE m.id = mitra FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    outcome := 'unknown';
    RETURN NEXT;
    RETURN;
  END IF;
  IF NOT want THEN
    UPDATE auth_sessions s SET revoked_at = clock_timestamp()
     WHERE s.mitra_id = mitra AND s.revoked_at IS NULL;
  END IF;
  UPDATE mitras m SET is_active = want WHERE m.id = mitra AND m.is_active IS DISTINCT FROM want;
  RETURN QUERY SELECT 'done', v FROM mitra_availability_state v WHERE v.mitra_id = mitra;
END $$;

-- The room is looked at under the lock under which it is taken: nobody is ever given more sessions
-- than most. One that the mitra has accepted already is done.
CREATE FUNCTION availability_accept(session uuid, mitra uuid, most integer)
RETURNS TABLE (outcome text, state mitra_availability_state) LANGUAGE plpgsql AS $$
DECLARE
  present chat_sessions.status%TYPE;
  holder uuid;
  active boolean;
  busy integer;
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
    SELECT a.is_active, a.active_sessions INTO active, busy
      FROM mitra_availability a WHERE a.mitra_id = mitra FOR NO KEY UPDATE;
    IF active IS NOT TRUE THEN
      outcome := 'inactive';
    ELSIF busy >= most THEN
      outcome := 'full';
    ELSE
      outcome := 'done';
      UPDATE chat_sessions c SET status = 'active', mitra_id = mitra WHERE c.id = session;
    END IF;
  END IF;
  RETURN QUERY SELECT outcome, v FROM (SELECT) AS once
    LEFT JOIN mitra_availability_state v ON v.mitra_id = mitra;
END $$;

-- One that has ended in this way already is done.
CREATE FUNCTION availability_end(session uuid, how chat_sessions.status%TYPE)
RETURNS TABLE (outcome text, state mitra_availability_state) LANGUAGE plpgsql AS $$
DECLARE
  present chat_sessions.status%TYPE;
  holder uuid;
BEGIN
  SELECT c.status, c.mitra_id INTO present, holder
      FROM chat_sessions c WHERE c.id = session FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    outcome := 'unknown';
  ELSIF present = how THEN
    outcome := 'done';
  ELSIF present IN ('active', 'pending_payment') THEN
    outcome := 'done';
    UPDATE chat_sessions c SET status = how WHERE c.id = session;
  ELSE
    outcome := 'taken';
  END IF;
  RETURN QUERY SELECT outcome, v FROM (SELECT) AS once
    LEFT JOIN mitra_availability_state v ON v.mitra_id = holder;
END $$;

-- A session that waits for a payment runs: it keeps its place, so no state is changed, or locked.
CREATE FUNCTION availability_extend(session uuid, paid boolean)
RETURNS TABLE (outcome text, state mitra_availability_state) LANGUAGE plpgsql AS $$
DECLARE
  want chat_sessions.status%TYPE := CASE WHEN paid THEN 'active' ELSE 'pending_payment' END;
  present chat_sessions.status%TYPE;
  holder uuid;
BEGIN
  SELECT c.status, c.mitra_id INTO present, holder
      FROM chat_sessions c WHERE c.id = session FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    outcome := 'unknown';
  ELSIF present IN ('active', 'pending_payment') THEN
    outcome := 'done';
    UPDATE chat_sessions c SET status = want WHERE c.id = session AND present <> want;
  ELSE
    outcome := 'taken';
  END IF;
  RETURN QUERY SELECT outcome, v FROM (SELECT) AS once
    LEFT JOIN mitra_availability_state v ON v.mitra_id = holder;
END $$;

-- One row changes hands, so that nobody ever sees the session with both mitras, or with none. One
-- that the mitra has already is done.
CREATE FUNCTION availability_reroute(session uuid, mitra uuid, most integer)
RETURNS TABLE (outcome text, status text, state mitra_availability_state) LANGUAGE plpgsql AS $$
DECLARE
  present chat_sessions.status%TYPE;
  holder uuid;
  active boolean;
  busy integer;
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
    SELECT a.is_active, a.active_sessions INTO active, busy
      FROM mitra_availability a WHERE a.mitra_id = mitra;
    IF holder = mitra THEN
      outcome := 'done';
    ELSIF active IS NOT TRUE THEN
      outcome := 'inactive';
    ELSIF busy >= most THEN
      outcome := 'full';
    ELSE
      outcome := 'done';
      UPDATE chat_sessions c SET mitra_id = mitra WHERE c.id = session;
    END IF;
  ELSE
    outcome := 'taken';
  END IF;
  RETURN QUERY SELECT outcome, present::text, v FROM (SELECT) AS once
    LEFT JOIN mitra_availability_state v ON v.mitra_id IN (holder, mitra);
END $$;

-- Heartbeats come in batches, each stored if it is newer. A row that somebody is changing is left
-- for the next time: so this waits for nobody.
CREATE FUNCTION availability_mirror_heartbeats(ids uuid[], moments timestamptz[])
RETURNS bigint LANGUAGE sql AS $$
  WITH newer AS MATERIALIZED (
    SELECT s.mitra_id, h.moment FROM unnest(ids, moments) AS h (id, moment)
      JOIN mitra_online_status s ON s.mitra_id = h.id
     WHERE h.moment <= s.last_heartbeat_at IS NOT TRUE
     ORDER BY s.mitra_id FOR NO KEY UPDATE OF s SKIP LOCKED),
  stored AS (
    UPDATE mitra_online_status s SET last_heartbeat_at = n.moment, updated_at = now()
      FROM newer n WHERE s.mitra_id = n.mitra_id
    RETURNING 1)
  SELECT count(*) FROM stored
$$;

-- The mirror knows newer versions than are here: commits were lost. What is here is the truth, and
-- takes versions above them; also of a mitra that nobody knows any more, which is offline and not
-- active then.
CREATE FUNCTION availability_outbid(ids uuid[], versions bigint[])
RETURNS SETOF mitra_availability_state LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO mitra_availability AS a (mitra_id, version)
    SELECT id, max(version) + 1 FROM unnest(ids, versions) AS t (id, version) GROUP BY id ORDER BY id
  ON CONFLICT (mitra_id) DO UPDATE SET version = EXCLUDED.version, changed_xid = EXCLUDED.changed_xid
    WHERE a.version < EXCLUDED.version;
  RETURN QUERY SELECT * FROM mitra_availability_state v WHERE v.mitra_id = ANY (ids);
END $$;

-- +goose StatementEnd

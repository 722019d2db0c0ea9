-- +goose Up
-- +goose StatementBegin

-- One row for each mitra that ever was. There is no foreign key, and rows are never deleted: a
-- mitra that is deleted and created again under its id must not begin at version 1 again. Half of
-- each page is left free, so that a change of a row stays on its page, and in no index.
CREATE TABLE mitra_availability (
  mitra_id uuid PRIMARY KEY,
  is_online boolean NOT NULL DEFAULT false,
  is_active boolean NOT NULL DEFAULT false, -- false also when the mitra is gone
  active_sessions integer NOT NULL DEFAULT 0,
  version bigint NOT NULL DEFAULT 1,
  changed_xid xid8 NOT NULL DEFAULT pg_current_xact_id()
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX mitra_availability_online ON mitra_availability (mitra_id) WHERE is_online;

-- # Triggers
--
-- They run once a statement, over all the rows that it changed: a mitra's state is written once,
-- however many of its sessions a statement ends. States are written, and so locked, in the order of
-- ids: two statements that touch the same mitras do not wait for each other in a circle.
--
-- They run with the rights of the owner: who may change the tables need not know of the states.
--
-- A row that is not there yet is made. So it does not matter what is stored first, and triggers
-- that were off for a time leave nobody without a state.

CREATE FUNCTION availability_of_mitras() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE ids uuid[]; actives boolean[];
BEGIN
  IF TG_OP = 'INSERT' THEN
    SELECT array_agg(id), array_agg(is_active) INTO ids, actives FROM new_rows;
  ELSIF TG_OP = 'DELETE' THEN
    SELECT array_agg(id), array_agg(false) INTO ids, actives FROM old_rows;
  ELSE
    SELECT array_agg(id), array_agg(n.is_active) INTO ids, actives
      FROM old_rows o FULL JOIN new_rows n USING (id) WHERE n.is_active IS DISTINCT FROM o.is_active;
  END IF;
  INSERT INTO mitra_availability AS a (mitra_id, is_active)
    SELECT id, coalesce(active, false) FROM unnest(ids, actives) AS t (id, active) ORDER BY id
  ON CONFLICT (mitra_id) DO UPDATE
    SET is_active = EXCLUDED.is_active, version = a.version + 1, changed_xid = EXCLUDED.changed_xid;
  RETURN NULL;
END $$;

-- A mitra that goes online while it is online gives a sign of life, which has to outdo an
-- auto-offline that is under way. So a statement that names is_online takes a version for each of
-- its rows, also where the value stays. A trigger for statements cannot see what was named. This
-- one, for rows, can: it says so for the rest of the transaction. A mirror of heartbeats does not
-- name it, and takes none.
CREATE FUNCTION availability_named() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('availability.named', 'yes', true);
  RETURN NEW;
END $$;

CREATE FUNCTION availability_of_status() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE ids uuid[]; onlines boolean[]; named boolean;
BEGIN
  IF TG_OP = 'INSERT' THEN
    SELECT array_agg(mitra_id), array_agg(is_online) INTO ids, onlines FROM new_rows;
  ELSIF TG_OP = 'DELETE' THEN
    SELECT array_agg(mitra_id), array_agg(false) INTO ids, onlines FROM old_rows;
  ELSE
    named := coalesce(current_setting('availability.named', true) = 'yes', false);
    SELECT array_agg(mitra_id), array_agg(n.is_online) INTO ids, onlines
      FROM old_rows o FULL JOIN new_rows n USING (mitra_id)
     WHERE named OR n.is_online IS DISTINCT FROM o.is_online;
  END IF;
  INSERT INTO mitra_availability AS a (mitra_id, is_online)
    SELECT id, coalesce(online, false) FROM unnest(ids, onlines) AS t (id, online)
     WHERE id IS NOT NULL ORDER BY id
  ON CONFLICT (mitra_id) DO UPDATE
    SET is_online = EXCLUDED.is_online, version = a.version + 1, changed_xid = EXCLUDED.changed_xid;
  RETURN NULL;
END $$;

CREATE FUNCTION availability_of_sessions() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE ids uuid[]; more integer[];
BEGIN
  IF TG_OP <> 'DELETE' THEN
    SELECT array_agg(mitra_id), array_agg(1) INTO ids, more FROM new_rows
     WHERE status IN ('active', 'pending_payment') AND mitra_id IS NOT NULL;
  END IF;
  IF TG_OP <> 'INSERT' THEN
    SELECT ids || array_agg(mitra_id), more || array_agg(-1) INTO ids, more FROM old_rows
     WHERE status IN ('active', 'pending_payment') AND mitra_id IS NOT NULL;
  END IF;
  IF ids IS NULL THEN
    RETURN NULL;
  END IF;
  IF cardinality(ids) = 1 THEN -- as a session is accepted, or ends: in half the time
    UPDATE mitra_availability a
       SET active_sessions = a.active_sessions + more[1], version = a.version + 1, changed_xid = DEFAULT
     WHERE a.mitra_id = ids[1];
    IF FOUND THEN
      RETURN NULL;
    END IF;
  END IF;
  INSERT INTO mitra_availability AS a (mitra_id, active_sessions)
    SELECT id, sum(n) FROM unnest(ids, more) AS t (id, n) GROUP BY id HAVING sum(n) <> 0 ORDER BY id
  ON CONFLICT (mitra_id) DO UPDATE
    SET active_sessions = a.active_sessions + EXCLUDED.active_sessions, version = a.version + 1,
        changed_xid = EXCLUDED.changed_xid;
  RETURN NULL;
END $$;

-- TRUNCATE names no rows: all is counted anew.
CREATE FUNCTION availability_of_truncate() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  PERFORM availability_repair();
  RETURN NULL;
END $$;

DO $$
DECLARE base text; handler text; event text; tables text;
BEGIN
  FOR base, handler IN VALUES
    ('mitras', 'availability_of_mitras'),
    ('mitra_online_status', 'availability_of_status'),
    ('chat_sessions', 'availability_of_sessions')
  LOOP
    FOR event, tables IN VALUES
      ('INSERT', 'NEW TABLE AS new_rows'),
      ('DELETE', 'OLD TABLE AS old_rows'),
      ('UPDATE', 'OLD TABLE AS old_rows NEW TABLE AS new_rows')
    LOOP
      EXECUTE format('CREATE TRIGGER %I AFTER %s ON %I REFERENCING %s
                      FOR EACH STATEMENT EXECUTE FUNCTION %I()',
                     'availability_' || lower(event), event, base, tables, handler);
    END LOOP;
    EXECUTE format('CREATE TRIGGER availability_truncate AFTER TRUNCATE ON %I
                    FOR EACH STATEMENT EXECUTE FUNCTION availability_of_truncate()', base);
  END LOOP;
END $$;
CREATE TRIGGER availability_named BEFORE UPDATE OF is_online ON mitra_online_status
  FOR EACH ROW WHEN (OLD.is_online IS NOT DISTINCT FROM NEW.is_online) EXECUTE FUNCTION availability_named();

-- With the owner's rights nothing may be found that somebody else put in the way. Nobody else may
-- make a trigger of them, on a table of their own that says what they like.
DO $$
DECLARE name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['mitras', 'status', 'sessions', 'truncate'] LOOP
    EXECUTE format('ALTER FUNCTION availability_of_%s() SET search_path = %I, pg_temp',
                   name, current_schema());
    EXECUTE format('REVOKE EXECUTE ON FUNCTION availability_of_%s() FROM PUBLIC', name);
  END LOOP;
END $$;

-- # What is read

-- What each state has to be by the other tables.
CREATE VIEW mitra_availability_truth AS
SELECT mitra_id, coalesce(s.is_online, false) AS is_online, coalesce(m.is_active, false) AS is_active,
       coalesce(c.n, 0)::integer AS active_sessions
  FROM mitra_availability
  FULL JOIN (SELECT id AS mitra_id, is_active FROM mitras) m USING (mitra_id)
  FULL JOIN (SELECT mitra_id, is_online FROM mitra_online_status WHERE mitra_id IS NOT NULL) s USING (mitra_id)
  FULL JOIN (
    SELECT mitra_id, count(*) AS n FROM chat_sessions
     WHERE status IN ('active', 'pending_payment') AND mitra_id IS NOT NULL GROUP BY mitra_id) c USING (mitra_id);

-- The state as the mirror takes it. seen is the last sign of life that is stored; infinity is none,
-- nor is a moment that does not fit into 24 characters. A count below zero, as sessions may leave it
-- that came while triggers were off, is for availability_repair alone.
CREATE VIEW mitra_availability_state AS
SELECT a.mitra_id, a.version, a.is_online, a.is_active,
       greatest(a.active_sessions, 0) AS active_sessions, a.changed_xid,
       CASE WHEN greatest(s.last_heartbeat_at, s.last_online_at) BETWEEN '0001-01-02' AND '9999-12-30'
            THEN greatest(s.last_heartbeat_at, s.last_online_at)::timestamptz END AS seen
  FROM mitra_availability a LEFT JOIN mitra_online_status s USING (mitra_id);

-- availability_repair puts states right that are not what they have to be, and says what was wrong.
CREATE FUNCTION availability_repair() RETURNS TABLE (id uuid, was text, became text) LANGUAGE plpgsql AS $$
DECLARE ids uuid[];
BEGIN
  SELECT array_agg(t.mitra_id) INTO ids
    FROM mitra_availability_truth t LEFT JOIN mitra_availability a USING (mitra_id)
   WHERE (t.is_online, t.is_active, t.active_sessions)
         IS DISTINCT FROM (a.is_online, a.is_active, a.active_sessions);
  IF ids IS NULL THEN
    RETURN;
  END IF;
  -- This makes what is missing, and locks what is there, in one order.
  INSERT INTO mitra_availability AS a (mitra_id) SELECT u FROM unnest(ids) u ORDER BY u
  ON CONFLICT (mitra_id) DO UPDATE SET version = a.version WHERE false;
  -- All is read again by a new statement. Under the lock a change of the tables is either
  -- committed, together with its change of the state, and seen here, or it will change the state
  -- after this.
  RETURN QUERY
    WITH wrong AS (
      SELECT t.*, format('online %s, active %s, sessions %s', a.is_online, a.is_active, a.active_sessions) was
        FROM mitra_availability_truth t JOIN mitra_availability a USING (mitra_id)
       WHERE mitra_id = ANY (ids)
         AND (t.is_online, t.is_active, t.active_sessions)
             IS DISTINCT FROM (a.is_online, a.is_active, a.active_sessions))
    UPDATE mitra_availability a
       SET is_online = w.is_online, is_active = w.is_active, active_sessions = w.active_sessions,
           version = a.version + 1, changed_xid = DEFAULT
      FROM wrong w WHERE a.mitra_id = w.mitra_id
    RETURNING a.mitra_id, w.was,
              format('online %s, active %s, sessions %s', a.is_online, a.is_active, a.active_sessions);
END $$;

SELECT availability_repair();

-- +goose StatementEnd

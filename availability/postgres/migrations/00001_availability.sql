-- +goose Up
-- +goose StatementBegin

-- The tables that a dispatch service has. Of those that are there already, only columns that are
-- missing are added. Whoever may do no more than that needs no other right on them.
CREATE TABLE IF NOT EXISTS mitras (id uuid PRIMARY KEY DEFAULT gen_random_uuid());
CREATE TABLE IF NOT EXISTS mitra_online_status (id uuid PRIMARY KEY DEFAULT gen_random_uuid())
  WITH (fillfactor = 70);
CREATE TABLE IF NOT EXISTS mitra_online_logs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
CREATE TABLE IF NOT EXISTS chat_sessions (id uuid PRIMARY KEY DEFAULT gen_random_uuid());
CREATE TABLE IF NOT EXISTS auth_sessions (id uuid PRIMARY KEY DEFAULT gen_random_uuid());
CREATE TABLE IF NOT EXISTS app_config (key text PRIMARY KEY, value jsonb NOT NULL);

DO $$
DECLARE
  missing record;
  late text;
BEGIN
  FOR missing IN
    SELECT of, name, type FROM (VALUES
      ('mitras', 'is_active', 'boolean NOT NULL DEFAULT true'),
      ('mitra_online_status', 'mitra_id', 'uuid NOT NULL UNIQUE REFERENCES mitras (id) ON DELETE CASCADE'),
      ('mitra_online_status', 'is_online', 'boolean NOT NULL DEFAULT false'),
      ('mitra_online_status', 'last_online_at', 'timestamptz'),
      ('mitra_online_status', 'last_offline_at', 'timestamptz'),
      ('mitra_online_status', 'last_heartbeat_at', 'timestamptz'),
      ('mitra_online_status', 'updated_at', 'timestamptz NOT NULL DEFAULT now()'),
      ('mitra_online_logs', 'mitra_id', 'uuid NOT NULL REFERENCES mitras (id) ON DELETE CASCADE'),
      ('mitra_online_logs', 'status', 'text NOT NULL'),
      ('mitra_online_logs', 'created_at', 'timestamptz NOT NULL DEFAULT now()'),
      ('chat_sessions', 'mitra_id', 'uuid REFERENCES mitras (id) ON DELETE SET NULL'),
      ('chat_sessions', 'status', 'text NOT NULL DEFAULT ''searching'''),
      ('auth_sessions', 'mitra_id', 'uuid REFERENCES mitras (id) ON DELETE CASCADE'),
      ('auth_sessions', 'revoked_at', 'timestamptz')
    ) AS wanted (of, name, type)
    WHERE NOT EXISTS (
      SELECT FROM pg_attribute WHERE attrelid = of::regclass AND attname = name AND NOT attisdropped)
  LOOP
    EXECUTE format('ALTER TABLE %I ADD COLUMN %I %s', missing.of, missing.name, missing.type);
  END LOOP;

  -- A mitra has one status. Whatever looks for it relies on that. ON CONFLICT takes no constraint that
  -- is checked later.
  SELECT c.conname INTO late FROM pg_constraint c
    JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attname = 'mitra_id'
   WHERE c.conrelid = 'mitra_online_status'::regclass AND c.contype IN ('u', 'p') AND c.condeferrable
     AND c.conkey = ARRAY[a.attnum];
  IF FOUND THEN
    RAISE invalid_object_definition USING
      MESSAGE = format('constraint %1$I on mitra_online_status (mitra_id) is deferrable, and must not be; '
        'run: ALTER TABLE mitra_online_status DROP CONSTRAINT %1$I, ADD UNIQUE (mitra_id)', late);
  END IF;
  IF NOT EXISTS (
    SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attname = 'mitra_id'
     WHERE i.indrelid = 'mitra_online_status'::regclass AND i.indisunique AND i.indisvalid
       AND i.indpred IS NULL AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum)
  THEN
    CREATE UNIQUE INDEX availability_one_status ON mitra_online_status (mitra_id);
  END IF;

  -- For counting anew, which else would read every session that ever was. Its owner may have made it
  -- before, without keeping writers waiting.
  IF to_regclass('availability_busy_sessions') IS NULL THEN
    CREATE INDEX availability_busy_sessions ON chat_sessions (mitra_id)
     WHERE status IN ('active', 'pending_payment');
  END IF;
END $$;

-- What an administrator may change.
INSERT INTO app_config (key, value) VALUES
  ('max_customers_per_mitra', '3'),
  ('stale_after_seconds', '120'),
  ('require_ping', 'true'),
  ('heartbeat_cadence_seconds', '30')
ON CONFLICT (key) DO NOTHING;

-- # States

-- One row for each mitra that ever was. There is no foreign key, and rows are never deleted: a
-- mitra that is deleted and created again under its id must not begin at version 1 again. Half of
-- each page is left free, so that a change of a row stays on its page, and in no index.
CREATE TABLE mitra_availability (
  mitra_id uuid PRIMARY KEY,
  is_online boolean NOT NULL DEFAULT false,
  is_active boolean NOT NULL DEFAULT false, -- false also when the mitra is gone
  active_sessions integer NOT NULL DEFAULT 0,
  version bigint NOT NULL DEFAULT 1,
  -- When a mitra was set offline for silence: last_offline_at, as it is stored. It is valid while that is
  -- the last time that the mitra went offline.
  judged_at timestamptz,
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

-- TRUNCATE names no rows: all is counted anew. It also removes rows that are newer than what a
-- transaction of a stricter isolation sees, and whose states that transaction cannot see either.
CREATE FUNCTION availability_of_truncate() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE feature_not_supported USING
      MESSAGE = format('TRUNCATE of %I in a transaction that is %s would leave states of availability wrong',
        TG_TABLE_NAME, current_setting('transaction_isolation')),
      HINT = 'Truncate in a transaction that is READ COMMITTED.';
  END IF;
  PERFORM availability_recount();
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

-- A judgement ends with the first statement that names is_online after it, whoever makes it and
-- whatever columns it leaves out: last_offline_at alone does not tell, as SQL by hand need not set it.
-- What sets somebody offline for silence stores the judgement after that.
CREATE FUNCTION availability_unjudged() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.judged_at := NULL;
  RETURN NEW;
END $$;
CREATE TRIGGER availability_unjudged BEFORE UPDATE OF is_online ON mitra_availability
  FOR EACH ROW WHEN (OLD.judged_at IS NOT NULL) EXECUTE FUNCTION availability_unjudged();

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
-- nor is a moment that does not fit into 24 characters. judged is a second before the judgement: a mirror
-- that has a later heartbeat took it behind the judgement, since who was found silent had none for two
-- seconds, and the clocks are a second apart at most. A count below zero, as sessions may leave it
-- that came while triggers were off, is for availability_repair alone.
CREATE VIEW mitra_availability_state AS
SELECT a.mitra_id, a.version, a.is_online, a.is_active,
       greatest(a.active_sessions, 0) AS active_sessions, a.changed_xid,
       CASE WHEN greatest(s.last_heartbeat_at, s.last_online_at) BETWEEN '0001-01-02' AND '9999-12-30'
            THEN greatest(s.last_heartbeat_at, s.last_online_at)::timestamptz END AS seen,
       CASE WHEN NOT a.is_online AND a.judged_at = s.last_offline_at THEN a.judged_at - interval '1 second' END AS judged
  FROM mitra_availability a LEFT JOIN mitra_online_status s USING (mitra_id);

-- availability_recount puts states right that are not what they have to be, and says what was wrong.
CREATE FUNCTION availability_recount() RETURNS TABLE (id uuid, was text, became text) LANGUAGE plpgsql AS $$
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

-- availability_repair is for people who changed rows while no trigger saw it, as a restore of data does.
-- The mirror may then have newer versions of states that agree with the tables, and mitras that are not
-- here any more. So it also begins another life of this database: everything is compared. The filenode of
-- this empty table is part of what identifies a life (feed.go).
CREATE TABLE availability_lives ();
CREATE FUNCTION availability_repair() RETURNS TABLE (id uuid, was text, became text)
LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  TRUNCATE availability_lives;
  RETURN QUERY SELECT * FROM availability_recount();
END $$;

-- # Fleets
--
-- Each leader announces its fleet: the replicas that share a Redis and a prefix. A heartbeat that another
-- fleet's Redis has is here only after that fleet's next copy. So availability_fleet returns the longest
-- pause between two copies of the others that were announced of late, or null.
CREATE TABLE availability_fleets (
  name text PRIMARY KEY,
  copies interval NOT NULL, -- pause between two copies of heartbeats
  seen_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE FUNCTION availability_fleet(mine text, pause interval) RETURNS interval LANGUAGE sql AS $$
  INSERT INTO availability_fleets (name, copies) VALUES (mine, pause)
    ON CONFLICT (name) DO UPDATE SET copies = EXCLUDED.copies, seen_at = EXCLUDED.seen_at;
  DELETE FROM availability_fleets WHERE seen_at < clock_timestamp() - interval '1 day' - 10 * copies;
  SELECT max(copies) FROM availability_fleets
   WHERE name <> mine AND seen_at > clock_timestamp() - greatest(interval '10 minutes', 3 * copies)
$$;

SELECT availability_recount();

-- # Writers

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

-- A mitra goes online or offline. again is for a heartbeat that the mirror could not take: only who
-- is online stays so. It is of this server's clock: that of the replica which was asked does not
-- matter. It takes a version, so an auto-offline that was judged before changes nothing, and the feed
-- brings it to the mirror.
CREATE FUNCTION availability_set_online(mitra uuid, want boolean, again boolean)
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
  SELECT s.is_online INTO was FROM mitra_online_status s WHERE s.mitra_id = mitra FOR NO KEY UPDATE;
  IF NOT FOUND AND want AND active AND NOT again THEN
    INSERT INTO mitra_online_status (mitra_id, is_online) VALUES (mitra, false)
      ON CONFLICT (mitra_id) DO NOTHING;
    SELECT s.is_online INTO was FROM mitra_online_status s WHERE s.mitra_id = mitra FOR NO KEY UPDATE;
  END IF;
  outcome := CASE WHEN want AND active IS NOT TRUE THEN 'inactive'
                  WHEN again AND was IS NOT TRUE THEN 'offline' ELSE 'done' END;
  IF outcome = 'done' THEN
    PERFORM FROM mitra_availability a WHERE a.mitra_id = mitra FOR NO KEY UPDATE;
    moment := clock_timestamp(); -- after all waiting
    -- A heartbeat of a time to come, by a clock that is ahead, stays: it counts until then. One that is
    -- more than a day ahead is none for the mirror.
    IF want THEN
      UPDATE mitra_online_status s
         SET is_online = true, updated_at = moment,
             last_heartbeat_at = CASE WHEN s.last_heartbeat_at BETWEEN moment AND moment + interval '1 day'
                                 THEN s.last_heartbeat_at ELSE moment END,
             last_online_at = CASE WHEN was THEN s.last_online_at ELSE moment END
       WHERE s.mitra_id = mitra;
    ELSIF was THEN
      UPDATE mitra_online_status s SET is_online = false, last_offline_at = moment, updated_at = moment
       WHERE s.mitra_id = mitra;
    END IF;
    IF want <> coalesce(was, false) THEN
      INSERT INTO mitra_online_logs (mitra_id, status, created_at) VALUES (mitra, word, moment);
    END IF;
    IF NOT want THEN -- of its own will: no heartbeat overrules that
      UPDATE mitra_availability a SET judged_at = NULL, version = a.version + 1, changed_xid = DEFAULT
       WHERE a.mitra_id = mitra AND a.judged_at IS NOT NULL;
    END IF;
  END IF;
  RETURN QUERY SELECT outcome, v FROM (SELECT) AS once
    LEFT JOIN mitra_availability_state v ON v.mitra_id = mitra;
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

-- availability_session gives a session that is searching to a mitra (both are given), moves one that
-- runs to another (no status is), or gives it another status (no mitra is). What is so already is
-- done. One row changes hands, so that nobody ever sees a session with two mitras, or with none.
--
-- A mitra may have one session more as long as it is active and has fewer than it may. Under the lock
-- of its state all is read where it is stored: the sessions in their table, is_active in its own, the
-- limit in app_config. So rows that no trigger saw count, and a lowered limit applies from its commit.
-- The caller's limit, which may be older, applies if it is lower, or if app_config has none that makes
-- sense.
CREATE FUNCTION availability_session(
  session uuid, mitra uuid, want chat_sessions.status%TYPE, known integer)
RETURNS TABLE (outcome text, status text, state mitra_availability_state) LANGUAGE plpgsql AS $$
DECLARE
  present chat_sessions.status%TYPE;
  holder uuid;
  runs boolean;
BEGIN
  PERFORM FROM mitras m WHERE m.id = mitra FOR KEY SHARE;
  IF FOUND OR mitra IS NULL THEN
    SELECT c.status, c.mitra_id INTO present, holder
      FROM chat_sessions c WHERE c.id = session FOR NO KEY UPDATE;
  END IF;
  IF FOUND THEN
    runs := present IN ('active', 'pending_payment');
    outcome := CASE
      WHEN present = coalesce(want, present) AND coalesce(mitra = holder, mitra IS NULL) AND (runs OR mitra IS NULL)
      THEN 'done'
      WHEN CASE WHEN mitra IS NULL OR want IS NULL THEN runs ELSE present = 'searching' END IS NOT TRUE
      THEN 'taken'
      WHEN mitra IS NULL THEN 'done' END;
  ELSE
    outcome := 'unknown';
  END IF;
  IF outcome IS NULL THEN
    IF NOT EXISTS (SELECT FROM mitra_availability a WHERE a.mitra_id = mitra) THEN -- triggers were off
      INSERT INTO mitra_availability (mitra_id, is_active)
        SELECT m.id, coalesce(m.is_active, false) FROM mitras m WHERE m.id = mitra
      ON CONFLICT (mitra_id) DO NOTHING;
    END IF;
    PERFORM FROM mitra_availability a WHERE a.mitra_id IN (holder, mitra)
      ORDER BY a.mitra_id FOR NO KEY UPDATE;
    -- A statement of its own: it sees what was committed while the lock was waited for.
    SELECT CASE WHEN m.is_active IS NOT TRUE THEN 'inactive'
                WHEN (SELECT count(*) FROM chat_sessions c
                       WHERE c.mitra_id = mitra AND c.status IN ('active', 'pending_payment'))
                  >= least(known, (SELECT min(btrim(s.value::text, E' \t\n\r')::integer) FROM app_config s
                       WHERE s.key = 'max_customers_per_mitra'
                         AND btrim(s.value::text, E' \t\n\r') ~ '^(0|[1-9][0-9]{0,7}|100000000)$'))
                THEN 'full' ELSE 'done' END
      INTO outcome FROM mitras m WHERE m.id = mitra;
  END IF;
  IF outcome = 'done' THEN
    UPDATE chat_sessions c SET status = coalesce(want, c.status), mitra_id = coalesce(mitra, c.mitra_id)
     WHERE c.id = session
       AND (c.status, c.mitra_id) IS DISTINCT FROM (coalesce(want, c.status), coalesce(mitra, c.mitra_id));
  END IF;
  -- Without seen: a lock on all of mitra_online_status, as of an ALTER TABLE, concerns no session.
  RETURN QUERY SELECT outcome, coalesce(want, present)::text, CASE WHEN a.mitra_id IS NOT NULL THEN
      ROW (a.mitra_id, a.version, a.is_online, a.is_active, greatest(a.active_sessions, 0), a.changed_xid, NULL,
        CASE WHEN NOT a.is_online THEN a.judged_at - interval '1 second' END)::mitra_availability_state END
    FROM (SELECT) AS once LEFT JOIN mitra_availability a ON a.mitra_id IN (holder, mitra);
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

-- Each pair is a mitra that was found silent, and the version at which it was. A version is good
-- for one flip: whoever comes late, or again, finds another. What is stored here is asked as well.
--
-- Locks are taken in the order of the other writers. A row that somebody holds
-- is left for the next time, as one transaction that stays open must not keep all others online.
-- States are returned of all, also of those that were left. Where no foreign key takes it along, the
-- status of a mitra who is gone stays: it goes offline, and nothing is logged of whom nobody knows.
CREATE FUNCTION availability_auto_offline(ids uuid[], versions bigint[], cutoff timestamptz)
RETURNS TABLE (flipped boolean, state mitra_availability_state) LANGUAGE plpgsql AS $$
DECLARE
  word mitra_online_logs.status%TYPE := 'offline';
  moment timestamptz;
  mine uuid[];
  done uuid[];
BEGIN
  mine := ARRAY(SELECT m.id FROM mitras m
    WHERE m.id = ANY (ids) ORDER BY m.id FOR KEY SHARE SKIP LOCKED);
  mine := ARRAY(SELECT s.mitra_id FROM mitra_online_status s
    WHERE s.mitra_id = ANY (mine) OR s.mitra_id = ANY (ids)
      AND NOT EXISTS (SELECT FROM mitras m WHERE m.id = s.mitra_id)
    ORDER BY s.mitra_id FOR NO KEY UPDATE SKIP LOCKED);
  mine := ARRAY(SELECT a.mitra_id FROM mitra_availability a
    WHERE a.mitra_id = ANY (mine) ORDER BY a.mitra_id FOR NO KEY UPDATE SKIP LOCKED);
  moment := clock_timestamp();
  WITH off AS (
    UPDATE mitra_online_status s SET is_online = false, last_offline_at = moment, updated_at = moment
      FROM unnest(ids, versions) AS c (id, version)
      JOIN mitra_availability_state a ON a.mitra_id = c.id AND a.version = c.version
     WHERE s.mitra_id = c.id AND s.mitra_id = ANY (mine)
       AND s.is_online AND a.seen >= cutoff IS NOT TRUE
    RETURNING s.mitra_id),
  logged AS (
    INSERT INTO mitra_online_logs (mitra_id, status, created_at) SELECT off.mitra_id, word, moment FROM off
     WHERE EXISTS (SELECT FROM mitras m WHERE m.id = off.mitra_id))
  SELECT array_agg(off.mitra_id) INTO done FROM off;
  UPDATE mitra_availability a SET judged_at = s.last_offline_at
    FROM mitra_online_status s WHERE s.mitra_id = a.mitra_id AND a.mitra_id = ANY (done);
  RETURN QUERY SELECT coalesce(v.mitra_id = ANY (done), false), v
    FROM mitra_availability_state v WHERE v.mitra_id = ANY (ids);
END $$;

-- The mirror took a heartbeat behind the judgement for which a mitra was set offline: that is taken
-- back, unless the mitra has gone online or offline since.
CREATE FUNCTION availability_revive(ids uuid[])
RETURNS SETOF mitra_availability_state LANGUAGE plpgsql AS $$
DECLARE
  word mitra_online_logs.status%TYPE := 'online';
  moment timestamptz;
  done uuid[];
BEGIN
  PERFORM FROM mitras m WHERE m.id = ANY (ids) ORDER BY m.id FOR KEY SHARE;
  PERFORM FROM mitra_online_status s WHERE s.mitra_id = ANY (ids) ORDER BY s.mitra_id FOR NO KEY UPDATE;
  PERFORM FROM mitra_availability a WHERE a.mitra_id = ANY (ids) ORDER BY a.mitra_id FOR NO KEY UPDATE;
  moment := clock_timestamp();
  done := ARRAY(SELECT v.mitra_id FROM mitra_availability_state v
    WHERE v.mitra_id = ANY (ids) AND v.judged IS NOT NULL);
  UPDATE mitra_online_status s SET is_online = true, updated_at = moment WHERE s.mitra_id = ANY (done);
  INSERT INTO mitra_online_logs (mitra_id, status, created_at) SELECT m.id, word, moment
    FROM mitras m WHERE m.id = ANY (done);
  RETURN QUERY SELECT * FROM mitra_availability_state v WHERE v.mitra_id = ANY (ids);
END $$;

-- # Sign-ins
--
-- A sign-in that is under way while its mitra is deactivated has seen an active mitra, and its row
-- is not committed yet when the deactivation revokes what it sees. So a sign-in looks again, right
-- before its own commit. The lock is taken only then, and meets the one of a change of is_active:
-- either the sign-in is committed first, and is revoked, or it sees the change. A deactivation
-- never waits for a sign-in that takes its time.
--
-- It looks at the mitra, and not at when it was deactivated: a deactivated mitra cannot sign in.
-- Where nobody knows the mitra nothing is revoked.
CREATE FUNCTION availability_of_sign_in() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE active boolean;
BEGIN
  SELECT m.is_active INTO active FROM mitras m WHERE m.id = NEW.mitra_id FOR SHARE;
  IF FOUND AND active IS NOT TRUE THEN
    UPDATE auth_sessions s SET revoked_at = clock_timestamp()
     WHERE s.mitra_id = NEW.mitra_id AND s.revoked_at IS NULL;
  END IF;
  RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER availability_sign_in AFTER INSERT OR UPDATE OF mitra_id, revoked_at ON auth_sessions
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.mitra_id IS NOT NULL AND NEW.revoked_at IS NULL)
  EXECUTE FUNCTION availability_of_sign_in();

-- # Rights, and names for the administrator's list

DO $$
DECLARE name text;
BEGIN
  -- With the owner's rights nothing may be found that somebody else put in the way. Nobody else may
  -- make a trigger of them, on a table of their own that says what they like.
  FOREACH name IN ARRAY ARRAY['of_mitras', 'of_status', 'of_sessions', 'of_truncate', 'of_sign_in', 'repair'] LOOP
    EXECUTE format('ALTER FUNCTION availability_%s() SET search_path = %I, pg_temp', name, current_schema());
    EXECUTE format('REVOKE EXECUTE ON FUNCTION availability_%s() FROM PUBLIC', name);
  END LOOP;
  ALTER FUNCTION availability_of_sign_in() SET timezone = 'UTC'; -- of a moment without time zone

  -- The function has the rights of this role. Without these nobody could sign in any more.
  IF NOT (has_any_column_privilege('mitras', 'UPDATE') AND has_any_column_privilege('auth_sessions', 'UPDATE')) THEN
    RAISE insufficient_privilege USING
      MESSAGE = format('role %I needs the right to UPDATE mitras and auth_sessions: availability_of_sign_in '
        'locks the one, and revokes rows of the other', current_user);
  END IF;

  IF NOT EXISTS (SELECT FROM pg_attribute
    WHERE attrelid = 'mitras'::regclass AND attname = 'display_name' AND NOT attisdropped)
  THEN
    ALTER TABLE mitras ADD COLUMN display_name text;
  END IF;
  -- Its owner may have made it before, without keeping writers waiting.
  IF to_regclass('availability_names') IS NULL THEN
    CREATE INDEX availability_names ON mitras ((coalesce(display_name::text, '')), id);
  END IF;
END $$;

-- +goose StatementEnd

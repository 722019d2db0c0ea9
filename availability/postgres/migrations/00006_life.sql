-- +goose Up
-- +goose StatementBegin

-- When a mitra was set offline for silence: last_offline_at, as it is stored. It is valid while
-- that is the last time that the mitra went offline.
ALTER TABLE mitra_availability ADD COLUMN IF NOT EXISTS judged_at timestamptz;

-- judged is a second before that. A mirror that has a later heartbeat took it behind the judgement:
-- who was found silent had none for two seconds, and the clocks are a second apart at most.
CREATE OR REPLACE VIEW mitra_availability_state AS
SELECT a.mitra_id, a.version, a.is_online, a.is_active,
       greatest(a.active_sessions, 0) AS active_sessions, a.changed_xid,
       CASE WHEN greatest(s.last_heartbeat_at, s.last_online_at) BETWEEN '0001-01-02' AND '9999-12-30'
            THEN greatest(s.last_heartbeat_at, s.last_online_at)::timestamptz END AS seen,
       CASE WHEN NOT a.is_online AND a.judged_at = s.last_offline_at THEN a.judged_at - interval '1 second' END AS judged
  FROM mitra_availability a LEFT JOIN mitra_online_status s USING (mitra_id);

-- As in 00004, but that the judgement is left in the states.
CREATE OR REPLACE FUNCTION availability_auto_offline(ids uuid[], versions bigint[], cutoff timestamptz)
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

-- A mitra that was set offline for silence, and goes offline itself, is so of its own will: no
-- heartbeat overrules that.
CREATE OR REPLACE FUNCTION availability_set_offline(mitra uuid)
RETURNS TABLE (outcome text, state mitra_availability_state) LANGUAGE plpgsql AS $$
BEGIN
  SELECT f.outcome INTO outcome FROM availability_set_online(mitra, false) f;
  UPDATE mitra_availability a SET judged_at = NULL, version = a.version + 1, changed_xid = DEFAULT
   WHERE a.mitra_id = mitra AND a.judged_at IS NOT NULL AND outcome = 'done';
  RETURN QUERY SELECT outcome, v FROM (SELECT) AS once
    LEFT JOIN mitra_availability_state v ON v.mitra_id = mitra;
END $$;

-- A heartbeat that the mirror could not take. It is of this server's clock: that of the replica
-- which was asked does not matter. It takes a version, so an auto-offline that was judged before
-- changes nothing, and the feed brings it to the mirror.
CREATE OR REPLACE FUNCTION availability_beat(mitra uuid)
RETURNS TABLE (outcome text, state mitra_availability_state) LANGUAGE plpgsql
SET lock_timeout = '1s' AS $$
DECLARE
  active boolean;
  was boolean;
  moment timestamptz;
BEGIN
  SELECT m.is_active INTO active FROM mitras m WHERE m.id = mitra FOR KEY SHARE;
  IF NOT FOUND THEN
    outcome := 'unknown';
    RETURN NEXT;
    RETURN;
  END IF;
  SELECT s.is_online INTO was FROM mitra_online_status s WHERE s.mitra_id = mitra FOR NO KEY UPDATE;
  outcome := CASE WHEN active IS NOT TRUE THEN 'inactive' WHEN was IS NOT TRUE THEN 'offline' ELSE 'done' END;
  IF outcome = 'done' THEN
    PERFORM FROM mitra_availability a WHERE a.mitra_id = mitra FOR NO KEY UPDATE;
    moment := clock_timestamp(); -- after all waiting
    -- One of a time to come, by a clock that is ahead, stays: it counts until then. One that is more
    -- than a day ahead is none for the mirror.
    UPDATE mitra_online_status s
       SET last_heartbeat_at = CASE WHEN s.last_heartbeat_at BETWEEN moment AND moment + interval '1 day'
                               THEN s.last_heartbeat_at ELSE moment END, updated_at = moment
     WHERE s.mitra_id = mitra;
    UPDATE mitra_availability a SET version = a.version + 1, changed_xid = DEFAULT WHERE a.mitra_id = mitra;
  END IF;
  RETURN QUERY SELECT outcome, v FROM (SELECT) AS once
    LEFT JOIN mitra_availability_state v ON v.mitra_id = mitra;
END $$;

-- The mirror took a heartbeat behind the judgement for which a mitra was set offline: that is taken
-- back, unless the mitra has gone online or offline since.
CREATE OR REPLACE FUNCTION availability_revive(ids uuid[])
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

-- +goose StatementEnd

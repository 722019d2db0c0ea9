-- +goose Up
-- +goose StatementBegin

-- Each pair is a mitra that was found silent, and the version at which it was. A version is good
-- for one flip: whoever comes late, or again, finds another. What is stored here is asked as well.
--
-- Locks are taken in the order of the other writers (00003_writers.sql). A row that somebody holds
-- is left for the next time, as one transaction that stays open must not keep all others online.
-- States are returned of all, also of those that were left. Where no foreign key takes it along, the
-- status of a mitra who is gone stays: it goes offline, and nothing is logged of whom nobody knows.
--
-- OR REPLACE: before, it was made by 00003, and waited.
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
  RETURN QUERY SELECT coalesce(v.mitra_id = ANY (done), false), v
    FROM mitra_availability_state v WHERE v.mitra_id = ANY (ids);
END $$;

-- +goose StatementEnd

-- +goose Up
-- +goose StatementBegin

-- A judgement ends with the first statement that names is_online after it, whoever makes it and
-- whatever columns it leaves out: last_offline_at alone does not tell, as SQL by hand need not set it.
-- What sets somebody offline for silence stores the judgement after that (00006_life.sql).
CREATE OR REPLACE FUNCTION availability_unjudged() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.judged_at := NULL;
  RETURN NEW;
END $$;

DROP TRIGGER IF EXISTS availability_unjudged ON mitra_availability;
CREATE TRIGGER availability_unjudged BEFORE UPDATE OF is_online ON mitra_availability
  FOR EACH ROW WHEN (OLD.judged_at IS NOT NULL) EXECUTE FUNCTION availability_unjudged();

-- +goose StatementEnd

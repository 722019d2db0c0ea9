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

-- +goose StatementEnd

-- +goose Up
-- +goose StatementBegin

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
CREATE OR REPLACE FUNCTION availability_of_sign_in() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE active boolean;
BEGIN
  SELECT m.is_active INTO active FROM mitras m WHERE m.id = NEW.mitra_id FOR SHARE;
  IF FOUND AND active IS NOT TRUE THEN
    UPDATE auth_sessions s SET revoked_at = clock_timestamp()
     WHERE s.mitra_id = NEW.mitra_id AND s.revoked_at IS NULL;
  END IF;
  RETURN NULL;
END $$;

DROP TRIGGER IF EXISTS availability_sign_in ON auth_sessions;
CREATE CONSTRAINT TRIGGER availability_sign_in AFTER INSERT OR UPDATE OF mitra_id, revoked_at ON auth_sessions
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.mitra_id IS NOT NULL AND NEW.revoked_at IS NULL)
  EXECUTE FUNCTION availability_of_sign_in();

-- # Names, for the administrator's list

DO $$
BEGIN
  -- As for the other triggers (00002_state.sql). A moment without time zone is UTC.
  EXECUTE format('ALTER FUNCTION availability_of_sign_in() SET search_path = %I, pg_temp', current_schema());
  ALTER FUNCTION availability_of_sign_in() SET timezone = 'UTC';
  REVOKE EXECUTE ON FUNCTION availability_of_sign_in() FROM PUBLIC;

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

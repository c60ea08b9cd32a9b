-- What a command has done, as JSON: whoever asks for it a second time is answered with it.
ALTER TABLE besom_command ADD COLUMN done TEXT;

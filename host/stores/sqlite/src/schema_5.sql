-- How each letter was set aside, as JSON; NULL: a former version did.
ALTER TABLE besom_dead ADD COLUMN context TEXT;

-- How each letter was set aside, as JSON; NULL: a former version did.
ALTER TABLE @.dead ADD COLUMN context text;

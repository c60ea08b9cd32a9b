-- What a command has done, as JSON: whoever asks for it a second time is answered with it.
ALTER TABLE @.command ADD COLUMN done text;

-- A slot has one run, also where a decision is repeated while its first copy is being committed.
-- Of those that an older version may have doubled, the first keeps the slot.
UPDATE @.run r SET trigger = '"pass"' WHERE r.trigger IN ('"schedule"', '"takeover"')
  AND EXISTS (SELECT 1 FROM @.run o WHERE o.task = r.task AND o.slot = r.slot
    AND o.trigger = r.trigger AND o.id < r.id);
CREATE UNIQUE INDEX run_of_slot ON @.run (task, slot, trigger)
    WHERE trigger IN ('"schedule"', '"takeover"');

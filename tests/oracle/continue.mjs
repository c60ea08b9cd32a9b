// Goes on writing, as a product's clients do. Usage: node continue.mjs DIRECTORY NAME...
// Two clients edit at the same time: one kept the log of DIRECTORY/NAME.log, the other
// pulled what is in DIRECTORY/NAME.compacted.log. Writes their updates, in turns, to
// DIRECTORY/NAME.next.log.
import { join } from 'node:path'
import { built, rootTypes } from './document.mjs'
import { editAll, typed } from './edit.mjs'
import { readLog, writeLog } from './log.mjs'

// Client ids that no case uses; the judge has its own.
const [KEPT, PULLED] = [2 ** 41 + 1, 2 ** 41 + 2]

const [directory, ...names] = process.argv.slice(2)
for (const name of names) {
  const old = readLog(join(directory, `${name}.log`))
  const compacted = readLog(join(directory, `${name}.compacted.log`))
  const types = rootTypes(built(old, KEPT))
  const next = [[old, KEPT], [compacted, PULLED]].map(([rows, id], seed) => {
    const client = typed(built(rows, id), types)
    const updates = []
    client.on('update', update => updates.push(update))
    editAll(client, types, 100 + seed)
    return updates
  })
  const turns = []
  while (next.some(updates => updates.length > 0)) {
    for (const updates of next) turns.push(...updates.splice(0, 1))
  }
  writeLog(join(directory, `${name}.next.log`), turns)
}

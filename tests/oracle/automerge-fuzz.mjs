// Small concurrent histories by Automerge itself, one update log each.
// Usage: node automerge-fuzz.mjs SEED COUNT DIRECTORY
import * as A from '@automerge/automerge'
import { join } from 'node:path'
import { edited } from './automerge-edit.mjs'
import { random, writeLog } from './log.mjs'

const [seed, count, directory] = process.argv.slice(2)

const actorOf = (n, document) => (n + 1).toString(16).padStart(2, '0').repeat(4) + (document >>> 0).toString(16).padStart(8, '0')

for (let index = 0; index < Number(count); index++) {
  const document = Number(seed) + index
  const rand = random(document)
  const pick = n => Math.floor(rand() * n)
  const alone = pick(4) === 0
  let replicas = Array.from({ length: alone ? 1 : 2 + pick(2) }, (_, n) => A.init({ actor: actorOf(n, document) }))
  const rows = []
  const write = (n, change) => {
    const before = A.getHeads(replicas[n])
    replicas[n] = change(replicas[n])
    const after = A.getChangesSince(replicas[n], before)
    rows.push(...after)
  }
  write(0, doc => A.change(doc, { time: 0 }, draft => {
    draft.text = 'hello world'
    draft.list = [1, 'two']
    draft.count = new A.Counter(1)
  }))
  for (let n = 1; n < replicas.length; n++) replicas[n] = A.applyChanges(replicas[n], rows.slice())[0]
  for (let steps = 3 + pick(14); steps > 0; steps--) {
    const n = pick(replicas.length)
    const kind = pick(10)
    if (kind < 2 && replicas.length > 1) {
      replicas[n] = A.merge(replicas[n], replicas[(n + 1) % replicas.length])
    } else if (kind === 2 && rows.length > 2) {
      // What was last done is undone, by the inverse patches.
      const history = A.getHistory(replicas[n])
      if (history.length > 1) {
        const doc = replicas[n]
        const change = A.decodeChange(A.getAllChanges(doc).at(-1))
        try {
          const inverse = A.diff(doc, A.getHeads(doc), change.deps)
          write(n, doc => A.change(doc, { time: 1 }, draft => A.applyPatches(draft, inverse)))
        } catch {
          // Not every patch has an inverse that can be applied.
        }
      }
    } else {
      const salt = pick(2 ** 31)
      write(n, doc => edited(doc, salt))
    }
  }
  // What a product stores: changes, some concatenated, some repeated, a snapshot now and then.
  const stored = []
  for (const row of rows) {
    if (stored.length > 0 && pick(8) === 0) stored.push(Buffer.concat([stored.pop(), row]))
    else stored.push(row)
    if (pick(12) === 0) stored.push(stored[pick(stored.length)])
  }
  if (pick(6) === 0) stored.unshift(A.save(replicas[0]))
  if (pick(6) === 0) stored.reverse()
  writeLog(join(directory, `s${document}.log`), stored)
  for (const doc of replicas) A.free(doc)
}

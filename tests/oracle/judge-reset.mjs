// Yjs judges logs that were reset. Usage: node judge-reset.mjs [--brief] DIRECTORY NAME...
// --brief: only what does not build a long document a dozen times.
// For each NAME the directory holds NAME.log and NAME.reset.log. Prints one line per failure
// and exits 1 if there is any.
import { join } from 'node:path'
import * as Y from 'yjs'
import { built, builtAtOnce, contentOf, deletionsOf, difference, rootTypes, stateOf, unlike } from './document.mjs'
import { editAll, typed } from './edit.mjs'
import { judgement } from './judging.mjs'
import { readLog } from './log.mjs'
import { shown } from './shown.mjs'

// Client ids that no case uses.
const [FIRST, SECOND] = [2 ** 40 + 1, 2 ** 40 + 2]
// Typed before it is loaded, as editors do: a text that is typed later does not know that it
// has marks, and then Yjs remembers places in it that depend on how it was cut into items.
const make = (rows, id, types) => builtAtOnce(rows, id, doc => typed(doc, types))
const contents = (a, b) => difference(contentOf(a), contentOf(b), 'content')

// How many units stand in the lists of a document's roots.
const units = doc => [...contentOf(doc).values()].reduce((sum, root) => sum + root.list.length, 0)

const checks = {
  'the content is the same': (old, reset) => contents(builtAtOnce(old, FIRST), builtAtOnce(reset, FIRST)),
  'the content is shown the same': (old, reset) => {
    const types = rootTypes(builtAtOnce(old, FIRST))
    return difference(shown(make(old, FIRST, types), types), shown(make(reset, FIRST, types), types), 'shown')
  },
  'it is one change of one fresh client, and nothing is deleted': (old, reset) => {
    const doc = builtAtOnce(reset, FIRST)
    const former = stateOf(builtAtOnce(old, FIRST))
    const clients = [...stateOf(doc).keys()]
    if (reset.length !== 1 || clients.length > 1) return `${reset.length} updates of ${clients.length} clients`
    if (doc.store.pendingStructs !== null || doc.store.pendingDs !== null) return 'something is pending'
    if (deletionsOf(doc).size > 0) return 'something is deleted'
    if (clients.some(client => client >= 2 ** 32)) return 'the client id has more than 32 bits'
    if (clients.some(client => former.has(client))) return 'the client id was there before'
    return null
  },
  'Yjs makes no fewer structs of it': (_, reset) => {
    const structs = update => Y.decodeUpdate(update).structs.length
    const [ours, theirs] = [structs(reset[0]), structs(Y.encodeStateAsUpdate(builtAtOnce(reset, FIRST)))]
    return ours === theirs ? null : `${ours} structs became ${theirs}`
  },
  'editing goes on from it alike': (old, reset) => {
    const types = rootTypes(builtAtOnce(old, FIRST))
    for (const seed of [1, 2, 3]) {
      const [former, fresh] = [make(old, FIRST, types), make(reset, FIRST, types)]
      for (const doc of [former, fresh]) {
        editAll(doc, types, seed)
        const texts = [...types].filter(([, kind]) => kind === 'text').map(([name]) => doc.getText(name))
        const manager = new Y.UndoManager([doc.getText(' undone'), ...texts], { captureTimeout: 0 })
        for (const text of texts) { text.insert(0, 'undone'); text.delete(1, 2) }
        editAll(doc, types, seed + 10)
        while (manager.undoStack.length > 1) manager.undo()
        manager.redo()
      }
      // Which of several marks that say the same is left depends on what was deleted among
      // them; what is shown does not.
      const found = difference(shown(former, types), shown(fresh, types), 'shown')
      if (found !== null) return `seed ${seed}: ${found}`
    }
    return null
  },
  'replicas of it agree': (_, reset) => {
    const types = rootTypes(builtAtOnce(reset, FIRST))
    const [a, b] = [make(reset, FIRST, types), make(reset, SECOND, types)]
    editAll(a, types, 5)
    editAll(b, types, 6)
    for (let round = 0; round < 4; round++) {
      Y.applyUpdate(b, Y.encodeStateAsUpdate(a, Y.encodeStateVector(b)))
      Y.applyUpdate(a, Y.encodeStateAsUpdate(b, Y.encodeStateVector(a)))
    }
    return unlike(a, b)
  },
  // Which is why a reset needs an epoch that the product checks.
  'a former replica that returns shows everything twice': (old, reset) => {
    const [once, twice] = [units(builtAtOnce(old, FIRST)), units(builtAtOnce([...reset, ...old], FIRST))]
    return twice === 2 * once ? null : `${once} units became ${twice}`
  }
}

const brief = ['the content is the same', 'it is one change of one fresh client, and nothing is deleted']
const given = process.argv.slice(2)
const isBrief = given[0] === '--brief'
const [directory, ...names] = isBrief ? given.slice(1) : given
const judging = judgement(isBrief ? brief : null)
for (const name of names) {
  judging.judge(name, checks, readLog(join(directory, `${name}.log`)), readLog(join(directory, `${name}.reset.log`)))
}
judging.end(`${names.length} judged`)

// Yjs judges compacted logs. Usage: node judge.mjs [--brief] DIRECTORY NAME...
// --brief: only what does not build a long document a dozen times.
// For each NAME the directory holds NAME.log and NAME.compacted.log; where there is a
// NAME.txt, it is what the document's only text has to be. Prints one line per failure and
// exits 1 if there is any.
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import * as Y from 'yjs'
import { built, difference, rootTypes, unlike } from './document.mjs'
import { editAll, typed } from './edit.mjs'
import { judgement } from './judging.mjs'
import { readLog } from './log.mjs'
import { shown } from './shown.mjs'

// Client ids that no case uses.
const [FIRST, SECOND, OFFLINE] = [2 ** 40 + 1, 2 ** 40 + 2, 2 ** 40 + 3]

// Both hear of each other until neither has news: receiving marks may delete redundant
// ones, and that is a change of its own.
const sync = (a, b) => {
  for (let round = 0; round < 4; round++) {
    Y.applyUpdate(b, Y.encodeStateAsUpdate(a, Y.encodeStateVector(b)))
    Y.applyUpdate(a, Y.encodeStateAsUpdate(b, Y.encodeStateVector(a)))
  }
}

// Two replicas edit at the same time, one undoes, then they hear of each other.
const meet = (first, second, types) => {
  editAll(first, types, 1)
  const texts = [...types].filter(([, kind]) => kind === 'text').map(([name]) => first.getText(name))
  const manager = new Y.UndoManager([first.getText(' undone'), ...texts], { captureTimeout: 0 })
  for (const text of texts) { text.insert(0, 'undone'); text.delete(1, 2) }
  editAll(second, types, 2)
  sync(first, second)
  while (manager.undoStack.length > 0) manager.undo()
  manager.redo()
  editAll(second, types, 3)
  sync(second, first)
}

const checks = {
  'the content is the same': (old, compacted) => unlike(built(old, FIRST), built(compacted, FIRST)),
  'the content is shown the same': (old, compacted) => {
    const types = rootTypes(built(old, FIRST))
    return difference(shown(typed(built(old, FIRST), types), types), shown(typed(built(compacted, FIRST), types), types))
  },
  'it is the same in a document that keeps what is deleted': (old, compacted) =>
    unlike(built(old, FIRST, { gc: false }), built(compacted, FIRST, { gc: false })),
  'a replica with the old log and one with the new go on alike': (old, compacted) => {
    const types = rootTypes(built(old, FIRST))
    const make = (rows, id) => typed(built(rows, id), types)
    const [kept, fresh] = [make(old, FIRST), make(compacted, SECOND)]
    const [controlKept, controlFresh] = [make(old, FIRST), make(old, SECOND)]
    meet(kept, fresh, types)
    meet(controlKept, controlFresh, types)
    return unlike(kept, fresh) ?? unlike(controlKept, kept) ?? unlike(controlFresh, fresh)
  },
  'the other way round as well': (old, compacted) => {
    const types = rootTypes(built(old, FIRST))
    const make = (rows, id) => typed(built(rows, id), types)
    const [fresh, kept] = [make(compacted, FIRST), make(old, SECOND)]
    meet(fresh, kept, types)
    return unlike(kept, fresh)
  },
  'an author who was offline during the compaction returns': (old, compacted) => {
    const seen = old.slice(0, Math.ceil(old.length / 2))
    const offline = built(seen, OFFLINE)
    // What was seen may be incomplete where rows came out of order.
    if (offline.store.pendingStructs !== null || offline.store.pendingDs !== null) return null
    const types = rootTypes(offline)
    const make = () => {
      const author = typed(built(seen, OFFLINE), types)
      editAll(author, types, 4)
      return author
    }
    const [author, controlAuthor] = [make(), make()]
    const [fresh, control] = [built(compacted, FIRST), built(old, FIRST)]
    sync(author, fresh)
    sync(controlAuthor, control)
    return unlike(fresh, author) ?? unlike(control, fresh)
  },
  'relative positions stay': (old, compacted) => {
    const types = rootTypes(built(old, FIRST))
    const [before, after] = [typed(built(old, FIRST), types), typed(built(compacted, FIRST), types)]
    for (const [name, kind] of types) {
      if (kind !== 'text') continue
      const text = before.getText(name)
      for (let at = 0; at <= text.length; at += 1 + (text.length >> 5)) {
        for (const side of [0, -1]) {
          const position = Y.createRelativePositionFromTypeIndex(text, at, side)
          const found = Y.createAbsolutePositionFromRelativePosition(position, after)
          if (found === null || found.index !== at) return `${name}: ${at} became ${found?.index}`
        }
      }
    }
    return null
  }
}

const brief = ['the content is the same', 'a replica with the old log and one with the new go on alike']
const given = process.argv.slice(2)
const isBrief = given[0] === '--brief'
const [directory, ...names] = isBrief ? given.slice(1) : given
const judging = judgement(isBrief ? brief : null)
for (const name of names) {
  const old = readLog(join(directory, `${name}.log`))
  const compacted = readLog(join(directory, `${name}.compacted.log`))
  const text = join(directory, `${name}.txt`)
  if (existsSync(text)) {
    const doc = built(compacted, FIRST)
    const texts = [...rootTypes(doc).keys()].map(root => doc.getText(root).toString())
    if (texts.length !== 1 || texts[0] !== readFileSync(text, 'utf8')) {
      judging.failed(`${name}: the text is not that of ${name}.txt`)
    }
  }
  judging.judge(name, checks, old, compacted)
}
judging.end(`${names.length} judged`)

// Loro judges compacted logs. Usage: node loro-judge.mjs [--brief] DIRECTORY
// --brief: for many documents, only what the other checks follow from as a rule.
// DIRECTORY/documents.pack holds, for each document, the former log and the log of those rows
// that each attached client has seen; DIRECTORY/compacted.pack holds the results of each, a
// merge and a trim, or an empty one where there is none. Prints one line per failure and exits 1 if
// there is any.
import { UndoManager } from 'loro-crdt'
import { join } from 'node:path'
import { difference } from './document.mjs'
import { built, pictureOf, reaches, roots, sync, tell, unlike } from './loro-document.mjs'
import { editAll } from './loro-edit.mjs'
import { judgement } from './judging.mjs'
import { parseLog, random, readLog } from './log.mjs'

// Peers that no document has.
const [FIRST, SECOND, CLIENT] = [2n ** 60n + 1n, 2n ** 60n + 2n, 2n ** 60n + 3n]

// Two replicas edit at the same time, one undoes, then they hear of each other.
const meet = (first, second) => {
  const manager = new UndoManager(first, { mergeInterval: 0 })
  editAll(first, random(1))
  editAll(second, random(2))
  sync(first, second)
  for (let nth = 0; nth < 3 && manager.canUndo(); nth++) manager.undo()
  if (manager.canRedo()) manager.redo()
  first.commit()
  editAll(second, random(3))
  sync(second, first)
}

// The authors of what a trimmed document begins with.
const beginners = compacted => each([built([compacted], FIRST)], doc => new Set(doc.shallowSinceFrontiers().map(id => id.peer)))

// How a replica with the log and one with the result differ. An item of a movable list that one
// deletes and another moves at the same time is there again; who had set its value stands in the
// history, and where Loro has trimmed that it names an author of the beginning instead. That
// name alone may differ; the value may not.
const unlikeTrimmed = (kept, fresh, authors) => {
  const same = (a, b) => {
    if (Array.isArray(a) && Array.isArray(b)) return b.map((inner, at) => same(a[at], inner))
    if (a instanceof Map && b instanceof Map) return new Map([...b].map(([key, inner]) => [key, same(a.get(key), inner)]))
    if (!isRecord(a) || !isRecord(b)) return b
    const entries = Object.entries(b).map(([key, inner]) => [key, same(a[key], inner)])
    const found = Object.fromEntries(entries)
    return 'moved' in found && authors.has(found.edited) ? { ...found, edited: a.edited } : found
  }
  return unlike(kept, { ...fresh, content: same(kept.content, fresh.content) })
}
const isRecord = value => typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype

const each = (docs, run) => {
  try { return run(...docs) } finally { docs.forEach(freed) }
}
// What Loro panicked in cannot be freed; the panic is what is to be told.
const freed = doc => { try { doc.free() } catch { /* it stays */ } }

// Loro panics now and then where two replicas of one untouched log hear of each other: there is
// nothing then that a result could be compared with. So few documents may be like that that
// the judge still judges.
const UNJUDGED_MAX = 1 / 100
class Unjudged extends Error {}
const unjudged = new Set()

// What replicas of the untouched log come to, if Loro can tell.
const untouched = make => () => {
  try { return make() } catch (error) {
    if (!(error instanceof WebAssembly.RuntimeError)) throw error
    throw new Unjudged(error.stack)
  }
}
// A check; null as well where there is nothing to compare with.
const orUnjudged = check => given => {
  try { return check(given) } catch (error) {
    if (!(error instanceof Unjudged)) throw error
    unjudged.add(given.document)
    return null
  }
}

const cursors = (before, after) => {
  for (const container of roots(before)) {
    if (typeof container.getCursor !== 'function') continue
    const length = container.length
    for (let at = 0; at <= length; at += 1 + (length >> 4)) {
      for (const side of [-1, 0, 1]) {
        const cursor = container.getCursor(at, side)
        if (cursor === undefined) continue
        const [was, is] = [before.getCursorPos(cursor), after.getCursorPos(cursor)]
        if (was.offset !== is.offset || was.side !== is.side) return `${container.id}: ${was.offset} became ${is.offset}`
      }
    }
  }
  return null
}

const checks = {
  'the content is the same': ({ old, compacted, once }) =>
    each([built([compacted], FIRST)], after =>
      unlike(once('old', () => each([built(old, FIRST)], pictureOf)), after)),
  'the history is the same': ({ old, compacted }) => each([built(old, FIRST), built([compacted], FIRST)], (before, after) => {
    if (after.isShallow()) return null
    const changes = doc => [...doc.getAllChanges()].sort(([a], [b]) => (a < b ? -1 : 1))
    return difference(changes(before), changes(after), 'changes')
  }),
  'a replica with the old log and one with the new go on alike': orUnjudged(({ old, compacted, authors, once }) => {
    const met = (first, second) => {
      meet(first, second)
      return [first, second].map(pictureOf)
    }
    const [controlKept, controlFresh] = once('met', untouched(() => each([built(old, FIRST), built(old, SECOND)], met)))
    const [kept, fresh] = each([built(old, FIRST), built([compacted], SECOND)], met)
    return unlikeTrimmed(kept, fresh, authors()) ?? unlike(controlKept, kept) ?? unlikeTrimmed(controlFresh, fresh, authors())
  }),
  'the other way round as well': ({ old, compacted, authors }) =>
    each([built([compacted], FIRST), built(old, SECOND)], (fresh, kept) => {
      meet(fresh, kept)
      return unlikeTrimmed(pictureOf(kept), pictureOf(fresh), authors())
    }),
  'every attached client goes on from what it has': orUnjudged(({ old, compacted, seen, authors, once }) => {
    const gone = (client, doc) => {
      if (!reaches(client.oplogVersion(), doc)) return null
      editAll(client, random(4))
      editAll(doc, random(5))
      sync(client, doc)
      return [client, doc].map(pictureOf)
    }
    for (const [nth, rows] of seen.entries()) {
      const control = once(`gone ${nth}`, untouched(() => each([built(rows, CLIENT), built(old, FIRST)], gone)))
      const found = each([built(rows, CLIENT), built([compacted], FIRST)], gone)
      if (found === null || control === null) return 'it lacks what the history begins with'
      const [[client, fresh], [controlClient, controlFresh]] = [found, control]
      const differs = unlikeTrimmed(client, fresh, authors()) ?? unlikeTrimmed(controlFresh, fresh, authors()) ?? unlike(controlClient, client)
      if (differs !== null) return differs
    }
    return null
  }),
  'it can be passed on': ({ old, compacted }) =>
    each([built([compacted], FIRST), built(old, SECOND)], (fresh, before) => {
      editAll(fresh, random(6))
      return each([built([fresh.export({ mode: 'snapshot' })], SECOND)], after => {
        tell(fresh, before)
        return unlike(fresh, after) ?? unlike(before, after)
      })
    }),
  'cursors stay': ({ old, compacted }) => each([built(old, FIRST), built([compacted], FIRST)], cursors)
}

const brief = ['the content is the same', 'a replica with the old log and one with the new go on alike', 'every attached client goes on from what it has']
const given = process.argv.slice(2)
const isBrief = given[0] === '--brief'
const directory = given.at(-1)
const documents = readLog(join(directory, 'documents.pack'))
const results = readLog(join(directory, 'compacted.pack'))
const judging = judgement(isBrief ? brief : null)
let judged = 0
for (let nth = 0; nth < results.length / 2; nth++) {
  const old = parseLog(documents[2 * nth])
  const seen = parseLog(documents[2 * nth + 1]).map(rows => parseLog(rows))
  // What the former log alone comes to is the same beside each result.
  const known = new Map()
  const once = (name, make) => {
    if (!known.has(name)) known.set(name, make())
    return known.get(name)
  }
  for (const [mode, compacted] of [['merge', results[2 * nth]], ['trim', results[2 * nth + 1]]]) {
    if (compacted.length === 0) continue
    judged++
    let beginning
    const authors = () => (beginning ??= beginners(compacted))
    judging.judge(`${nth} (${mode})`, checks, { document: nth, old, compacted, seen, authors, once })
  }
}
if (unjudged.size > Math.max(1, judged * UNJUDGED_MAX)) judging.failed(`Loro panics over ${[...unjudged]} as they were: too many`)
judging.end(`${judged} judged, of ${unjudged.size} documents Loro cannot tell`)

// Automerge judges compacted logs. Usage:
// node automerge-judge.mjs [--brief | --content] DIRECTORY (NAME... | @FILE with a name per line)
// For each NAME the directory holds NAME.log, NAME.compacted.log (a merge) and, where the
// history could be dropped, NAME.reset.log. --brief: only what does not build a long
// document a dozen times; --content: only what does not edit it, for values that JavaScript
// cannot write. Prints one line per failure and exits 1 if there is any.
import * as A from '@automerge/automerge'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { built, contentOf, difference, sequences, unlike } from './automerge-document.mjs'
import { edited } from './automerge-edit.mjs'
import { judgement } from './judging.mjs'
import { readLog } from './log.mjs'

// Actors that no case uses.
const [KEPT, PULLED, OTHER] = ['fe'.repeat(16), 'fd'.repeat(16), 'fc'.repeat(16)]

const editedOften = (doc, seed) => [0, 1, 2, 3].reduce((doc, n) => edited(doc, seed * 10 + n), doc)

// Both edit, hear of each other, one edits again; two documents that ought to be one.
const meet = (first, second) => {
  first = editedOften(first, 1)
  second = editedOften(second, 2)
  first = A.merge(first, second)
  second = A.merge(second, first)
  second = editedOften(second, 3)
  first = A.loadIncremental(first, A.saveSince(second, A.getHeads(first)))
  return [first, second]
}

const merged = {
  'the document is the same': (old, compacted) => unlike(built(old, KEPT), built(compacted, PULLED)),
  'it loads in one go': (old, compacted) => (compacted.length !== 1 ? `${compacted.length} rows` : unlike(built(old, KEPT), A.load(compacted[0], { actor: PULLED }))),
  'a replica with the old log and one with the new go on alike': (old, compacted) => {
    const [kept, pulled] = meet(built(old, KEPT), built(compacted, PULLED))
    const [control, controlPulled] = meet(built(old, KEPT), built(old, PULLED))
    return unlike(kept, pulled) ?? unlike(control, kept) ?? unlike(controlPulled, pulled)
  },
  'the other way round as well': (old, compacted) => {
    const [pulled, kept] = meet(built(compacted, PULLED), built(old, KEPT))
    return unlike(kept, pulled)
  },
  'an author who was offline during the compaction returns': (old, compacted) => {
    const seen = built(old.slice(0, Math.ceil(old.length / 2)), OTHER)
    if (A.getMissingDeps(seen, []).length > 0) return null
    const author = editedOften(seen, 4)
    const [kept, pulled] = [built(old, KEPT), built(compacted, PULLED)].map(doc => A.merge(doc, author))
    return unlike(kept, pulled) ?? unlike(A.merge(author, pulled), pulled)
  },
  'cursors stay': (old, compacted) => {
    const [before, after] = [built(old, KEPT), built(compacted, PULLED)]
    for (const { path } of sequences(before).filter(it => it.text)) {
      const length = A.getBackend(before).length(idAt(before, path))
      for (let at = 0; at < length; at += 1 + (length >> 5)) {
        for (const move of ['before', 'after']) {
          const cursor = A.getCursor(before, path, at, move)
          const [was, found] = [before, after].map(doc => A.getCursorPosition(doc, path, cursor))
          if (found !== was) return `${path}: ${was} became ${found}`
        }
      }
    }
    return null
  },
  'earlier states are shown as before': (old, compacted) => {
    const [before, after] = [built(old, KEPT), built(compacted, PULLED)]
    const hashes = A.topoHistoryTraversal(before)
    for (let at = 0; at < hashes.length; at += 1 + (hashes.length >> 3)) {
      const [was, found] = [before, after].map(doc => JSON.stringify(A.getBackend(A.view(doc, [hashes[at]])).materialize('_root', [hashes[at]]), shown))
      if (was !== found) return `at ${hashes[at]}: ${was} became ${found}`
    }
    return null
  }
}
const shown = (_, value) => (typeof value === 'bigint' ? `${value}n` : value instanceof Uint8Array ? [...value] : value)
const idAt = (doc, path) => A.getObjectId(path.slice(0, -1).reduce((value, key) => value[key], doc), path.at(-1))

// What is typed at every place of every text: which marks does it take?
const typed = doc => A.change(doc, { time: 0 }, draft => {
  for (const { path } of sequences(doc).filter(it => it.text)) {
    const value = path.reduce((value, key) => value[key], doc)
    for (let at = value.length; at >= 0; at--) {
      const unit = value.charCodeAt(at)
      if (!(unit >= 0xdc00 && unit <= 0xdfff)) A.splice(draft, path, at, 0, 'x')
    }
  }
})

const reset = {
  'the content is the same': (old, compacted) =>
    difference(contentOf(built(old, KEPT), { named: false }), contentOf(built(compacted, PULLED), { named: false }), 'content'),
  'it is one change': (_, compacted) => {
    const changes = A.topoHistoryTraversal(built(compacted, PULLED)).length
    return changes === 1 ? null : `${changes} changes`
  },
  'marks take in what is typed as before': (old, compacted) =>
    difference(...[old, compacted].map(rows => contentOf(typed(built(rows, KEPT)), { named: false }))),
  'edits have the same effect': (old, compacted) =>
    difference(...[old, compacted].map(rows => contentOf(editedOften(built(rows, KEPT), 5), { named: false }))),
  'to a replica with the old log it is a stranger': (old, compacted) => {
    const [kept, fresh] = [built(old, KEPT), built(compacted, PULLED)]
    const known = new Set(A.topoHistoryTraversal(kept))
    if (A.topoHistoryTraversal(fresh).every(hash => known.has(hash))) return null // It is the same change.
    const both = A.merge(kept, fresh)
    const heads = A.getHeads(both).length
    return heads > A.getHeads(built(old, KEPT)).length ? null : `${heads} heads`
  }
}

const brief = ['the document is the same', 'a replica with the old log and one with the new go on alike', 'the content is the same', 'marks take in what is typed as before']
const given = process.argv.slice(2)
const only = { '--brief': brief, '--content': ['the document is the same', 'it loads in one go', 'the content is the same', 'it is one change'] }[given[0]]
const [directory, ...named] = only ? given.slice(1) : given
const names = named[0]?.startsWith('@') ? readFileSync(named[0].slice(1), 'utf8').split('\n').filter(Boolean) : named
const judging = judgement(only)
let resets = 0
for (const name of names) {
  const old = readLog(join(directory, `${name}.log`))
  judging.judge(`${name}: compacted`, merged, old, readLog(join(directory, `${name}.compacted.log`)))
  const again = join(directory, `${name}.reset.log`)
  if (existsSync(again)) {
    resets++
    judging.judge(`${name}: reset`, reset, old, readLog(again))
  }
}
judging.end(`${names.length} judged, ${resets} of them reset as well`)

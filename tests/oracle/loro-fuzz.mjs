// Histories of several people at once, by chance. Usage: node loro-fuzz.mjs SEED COUNT DIRECTORY
// Writes DIRECTORY/documents.pack: for each document its log, and the log of what each
// attached client has seen of it, itself logs of rows.
import { UndoManager } from 'loro-crdt'
import { join } from 'node:path'
import { replica } from './loro-document.mjs'
import { editSome, pickOf, rooted } from './loro-edit.mjs'
import { encodeLog, random, writeLog } from './log.mjs'

const PEERS = [1n, 2n ** 63n, 7n, 2n ** 64n - 2n]

const document = seed => {
  const rand = random(seed)
  const pick = pickOf(rand)
  const peers = [...PEERS].sort(() => rand() - 0.5).slice(0, 1 + pick(3)).map(replica)
  if (pick(4) === 0) for (const doc of peers) doc.setRecordTimestamp(true)
  const undo = pick(2) === 0 ? new UndoManager(peers[0], { mergeInterval: 0 }) : undefined
  const rows = []
  // How many rows each has pulled; a row that is pulled is all there was up to it.
  const pulled = peers.map(() => 0)
  const pushed = peers.map(doc => doc.oplogVersion())
  const rounds = 2 + pick(6)
  for (let round = 0; round < rounds; round++) {
    peers.forEach((doc, nth) => {
      if (pick(3) === 0) return
      editSome(doc, rand, 1 + pick(6))
      if (nth === 0 && undo !== undefined && pick(3) === 0 && undo.canUndo()) undo.undo()
      if (pick(6) === 0) doc.commit({ message: `round ${round}` })
      doc.commit()
      if (pick(4) > 0) push(doc, nth)
    })
    peers.forEach((doc, nth) => { if (pick(2) === 0) pull(doc, nth) })
  }
  peers.forEach(push)
  function push (doc, nth) {
    doc.commit()
    const from = pushed[nth]
    // Only its own: what others made is in the log already.
    const own = doc.oplogVersion().get(doc.peerIdStr) ?? 0
    const had = from.get(doc.peerIdStr) ?? 0
    if (own > had) rows.push(doc.export({ mode: 'updates-in-range', spans: [{ id: { peer: doc.peerIdStr, counter: had }, len: own - had }] }))
    pushed[nth] = doc.oplogVersion()
  }
  function pull (doc, nth) {
    push(doc, nth)
    while (pulled[nth] < rows.length) doc.import(rows[pulled[nth]++])
  }
  // Attached are those that have pulled until some time; now and then nobody is.
  const seen = pick(4) === 0 ? [] : Array.from({ length: 1 + pick(2) }, () => rows.slice(0, rows.length - pick(Math.min(rows.length, 4))))
  // Stored as products do: now and then twice, in another order, or compacted before.
  if (pick(5) === 0 && rows.length > 0) rows.push(rows[pick(rows.length)])
  if (pick(5) === 0) rows.sort(() => rand() - 0.5)
  for (const doc of peers) doc.free()
  return [encodeLog(rows), encodeLog(seen.map(encodeLog))]
}

const [seed, count, directory] = process.argv.slice(2)
writeLog(join(directory, 'documents.pack'), Array.from({ length: Number(count) }, (_, nth) => document(Number(seed) + nth)).flat())

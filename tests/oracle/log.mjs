// Update logs: little-endian u32 count, then per update a u32 length and its bytes.
import { readFileSync, writeFileSync } from 'node:fs'

export const parseLog = (log, name = 'a log') => {
  const bytes = Buffer.from(log.buffer, log.byteOffset, log.byteLength)
  const updates = []
  let at = 4
  for (let left = bytes.readUInt32LE(0); left > 0; left--) {
    const length = bytes.readUInt32LE(at)
    updates.push(new Uint8Array(bytes.subarray(at + 4, at + 4 + length)))
    at += 4 + length
  }
  if (at !== bytes.length) throw new Error(`${name}: ${bytes.length - at} bytes remain`)
  return updates
}

export const encodeLog = updates => {
  const word = n => {
    const bytes = Buffer.alloc(4)
    bytes.writeUInt32LE(n)
    return bytes
  }
  return Buffer.concat([word(updates.length), ...updates.flatMap(u => [word(u.length), u])])
}

export const readLog = path => parseLog(readFileSync(path), path)
export const writeLog = (path, updates) => writeFileSync(path, encodeLog(updates))

// A seeded generator of numbers in [0, 1): mulberry32.
export const random = seed => () => {
  seed = (seed + 0x6d2b79f5) | 0
  let t = Math.imul(seed ^ (seed >>> 15), 1 | seed)
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296
}

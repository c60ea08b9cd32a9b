// Edits of whatever an Automerge document holds: the same seed makes the same edits on equal
// documents.
import * as A from '@automerge/automerge'
import { sequences } from './automerge-document.mjs'
import { random } from './log.mjs'

const NAMES = ['bold', 'italic', 'link', 'comment']
const EXPAND = ['none', 'before', 'after', 'both']
const WORDS = ['a', 'bc', 'é', '😀', '\u0000', ' word', '\n', 'xyz ', '']

const at = (doc, path) => path.reduce((value, key) => value[key], doc)

// Not within a surrogate pair.
const whole = (text, place) => {
  const unit = text.charCodeAt(place)
  return unit >= 0xdc00 && unit <= 0xdfff ? place - 1 : place
}

const scalar = pick => {
  switch (pick(14)) {
    case 0: return pick(1000) - 500
    case 1: return pick(100) / 8
    case 2: return null
    case 3: return pick(2) === 0
    case 4: return new Date(pick(10 ** 9))
    case 5: return new Uint8Array([pick(256), pick(256)].slice(0, pick(3)))
    case 6: return new A.Counter(pick(9) - 4)
    case 7: return new A.Uint(pick(1000))
    case 8: return new A.ImmutableString(WORDS[pick(WORDS.length)])
    case 9: return 2 ** 53 - 1 - pick(2)
    case 10: return new A.Float64(pick(3) - 1)
    case 11: return -(2 ** 31) - pick(3)
    default: return WORDS[pick(WORDS.length)]
  }
}
const value = (pick, depth = 0) => {
  const kind = pick(depth > 2 ? 5 : 8)
  if (kind < 5) return scalar(pick)
  if (kind === 5) return Array.from({ length: pick(4) }, () => value(pick, depth + 1))
  if (kind === 6) return Object.fromEntries(Array.from({ length: pick(4) }, (_, i) => [['', 'k', 'z', 'a'][i], value(pick, depth + 1)]))
  return `text ${pick(100)}`
}

// One change with some edits.
export const edited = (doc, seed, options = {}) => {
  const rand = random(seed)
  const pick = n => Math.floor(rand() * n)
  return A.change(doc, { time: options.time ?? pick(2 ** 30), message: pick(3) === 0 ? `m${pick(9)}` : undefined }, draft => {
    for (let left = 1 + pick(3); left > 0; left--) step(draft, pick)
  })
}

const step = (draft, pick) => {
  const found = sequences(draft)
  const texts = found.filter(it => it.text)
  const lists = found.filter(it => !it.text)
  const maps = mapsOf(draft)
  const kind = pick(12)
  if (kind < 5 && texts.length > 0) {
    const { path } = texts[pick(texts.length)]
    const text = at(draft, path)
    const start = whole(text, pick(text.length + 1))
    const end = Math.max(start, whole(text, Math.min(text.length, start + 1 + pick(4))))
    if (kind < 2) A.splice(draft, path, start, 0, WORDS[pick(WORDS.length)])
    else if (kind === 2) A.splice(draft, path, start, end - start, pick(2) ? 'new' : '')
    else if (kind === 3 && end > start) A.mark(draft, path, { start, end, expand: EXPAND[pick(4)] }, NAMES[pick(4)], [true, null, 'v', 7][pick(4)])
    else if (end > start && pick(2)) A.unmark(draft, path, { start, end, expand: EXPAND[pick(4)] }, NAMES[pick(4)])
    else A.splitBlock(draft, path, start, { type: new A.ImmutableString('p'), parents: [], attrs: { level: pick(4) } })
    return
  }
  if (kind < 8 && lists.length > 0) {
    const list = at(draft, lists[pick(lists.length)].path)
    const place = pick(list.length + 1)
    if (pick(3) > 0 || list.length === 0) A.insertAt(list, place, value(pick))
    else if (pick(2)) A.deleteAt(list, pick(list.length))
    else list[pick(list.length)] = value(pick)
    return
  }
  const map = maps[pick(maps.length)]
  const keys = Object.keys(map).sort()
  const key = keys.length > 0 && pick(3) > 0 ? keys[pick(keys.length)] : ['a', 'b', 'text', 'list', '', 'k😀'][pick(6)]
  const now = map[key]
  if (now instanceof A.Counter && pick(3) > 0) now.increment(pick(7) - 3)
  else if (keys.includes(key) && pick(4) === 0) delete map[key]
  else map[key] = value(pick)
}

const mapsOf = draft => {
  const found = []
  const walk = value => {
    if (Array.isArray(value)) value.forEach(walk)
    else if (value !== null && typeof value === 'object' && !(value instanceof Date) && !(value instanceof Uint8Array) && !(value instanceof A.Counter) && !A.isImmutableString(value)) {
      found.push(value)
      for (const key of Object.keys(value).sort()) walk(value[key])
    }
  }
  walk(draft)
  return found
}

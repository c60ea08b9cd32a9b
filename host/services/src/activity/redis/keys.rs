//! The names of keys, and their slots on a Redis Cluster.
//!
//! The two keys of an id are literal, `ws_conn:ws-1` and `idle_timer:ws-1`, and are in different
//! slots. In addition to the count there is a key of Besom's own that lists its connections by
//! name. Its hash tag is the name of the count, so that both are in one slot and one script can use
//! them.

/// Number of slots of a Redis Cluster.
pub const SLOTS: u16 = 16_384;

/// Default for the key of the connection count.
pub const CONNECTIONS_DEFAULT: &str = "ws_conn:{id}";
/// Default for the key of the timer.
pub const TIMER_DEFAULT: &str = "idle_timer:{id}";

/// The placeholder for the id in a template.
const PLACE: &str = "{id}";
/// The prefix of Besom's own key, before the name of the count.
const MEMBERS: &str = "besom:conn:";
/// The prefix of the observation marker.
const MARKER: &str = "besom:observed";

/// The name of a key with a placeholder for the id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    before: String,
    after: String,
}

impl Template {
    /// Parses a template such as `ws_conn:{id}`. Additional braces, as in `ws_conn:{{id}}`, make
    /// the id a hash tag. `None`: the placeholder does not occur exactly once.
    pub fn parse(text: &str) -> Option<Template> {
        let (before, after) = text.split_once(PLACE)?;
        let once = !after.contains(PLACE);
        once.then(|| Template { before: before.to_owned(), after: after.to_owned() })
    }

    fn of(&self, id: &str) -> String {
        format!("{}{id}{}", self.before, self.after)
    }
}

/// The keys of one id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// The number of connections, of all proxies.
    pub count: String,
    /// Besom's own connections, by name.
    pub members: String,
    /// The idle timer.
    pub timer: String,
}

impl Names {
    /// The keys of an id.
    pub fn of(connections: &Template, timer: &Template, id: &str) -> Names {
        let count = connections.of(id);
        let members = match tag(&count) {
            Some(tag) => format!("{MEMBERS}{{{tag}}}:{count}"),
            None => format!("{MEMBERS}{{{count}}}"),
        };
        Names { count, members, timer: timer.of(id) }
    }

    /// Whether one script can use the count and Besom's own connections on a cluster. An id that
    /// contains `}` may prevent it.
    pub fn fit(&self) -> bool {
        slot(&self.count) == slot(&self.members)
    }

    /// Whether the timer is in the same slot as the count.
    pub fn together(&self) -> bool {
        slot(&self.count) == slot(&self.timer)
    }
}

/// The name of the marker on a single server.
pub fn marker() -> String {
    MARKER.to_owned()
}

/// The name of a marker in the given slot.
pub fn marker_in(wanted: u16) -> String {
    // The slots are distributed evenly: some ten thousand trials suffice.
    let name = |n: u32| format!("{MARKER}:{{{n}}}");
    let n = (0..u32::MAX).find(|n| slot(&name(*n)) == wanted);
    name(n.unwrap_or_default())
}

/// The hash tag of a key: the part between its first braces, if it is not empty.
fn tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// The slot of a key.
pub fn slot(key: &str) -> u16 {
    crc16(tag(key).unwrap_or(key).as_bytes()) % SLOTS
}

/// CRC16 as specified for Redis Cluster (XMODEM).
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc: u16, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(connections: &str, timer: &str, id: &str) -> Names {
        let template = |text| Template::parse(text).expect("a template");
        Names::of(&template(connections), &template(timer), id)
    }

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        // As returned by `CLUSTER KEYSLOT`.
        for (key, expected) in [
            ("", 0),
            ("foo", 12_182),
            ("{user1000}.following", 3_443),
            ("{user1000}.followers", 3_443),
            ("foo{}{bar}", 8_363),
            ("foo{{bar}}zap", 4_015),
            ("foo{bar}{zap}", 5_061),
        ] {
            assert_eq!(slot(key), expected, "{key}");
        }
    }

    #[test]
    fn the_keys_are_literal_and_ours_lies_in_the_slot_of_the_count() {
        let plain = names(CONNECTIONS_DEFAULT, TIMER_DEFAULT, "ws-1");
        assert_eq!(plain.count, "ws_conn:ws-1");
        assert_eq!(plain.timer, "idle_timer:ws-1");
        assert_eq!(plain.members, "besom:conn:{ws_conn:ws-1}");
        assert!(plain.fit() && !plain.together());
        for (template, id, fit) in [
            (CONNECTIONS_DEFAULT, "a{b}c", true),
            (CONNECTIONS_DEFAULT, "a{b", true),
            (CONNECTIONS_DEFAULT, "a}b", false),
            (CONNECTIONS_DEFAULT, "a{}b", false),
            ("ws_conn:{{id}}", "ws-1", true),
        ] {
            assert_eq!(names(template, TIMER_DEFAULT, id).fit(), fit, "{template} {id}");
        }
    }

    #[test]
    fn a_template_with_a_hash_tag_brings_the_timer_into_the_same_slot() {
        let tagged = names("ws_conn:{{id}}", "idle_timer:{{id}}", "ws-1");
        assert_eq!(tagged.count, "ws_conn:{ws-1}");
        assert!(tagged.fit() && tagged.together());
        for wrong in ["ws_conn", "ws_conn:{id}{id}", ""] {
            assert_eq!(Template::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn every_slot_has_a_marker() {
        for wanted in [0, 1, 5_461, 16_383] {
            assert_eq!(slot(&marker_in(wanted)), wanted);
        }
    }
}

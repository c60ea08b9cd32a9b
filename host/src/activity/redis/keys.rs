//! The names of keys, and the slots they lie in on a Redis Cluster.
//!
//! The two keys of a thing are literal: `ws_conn:ws-1` and `idle_timer:ws-1`, in two slots.
//! Beside the count stands a key of our own with our connections by name; the count's name is
//! its hash tag, so that both lie in one slot and one script holds them.

/// Slots of a Redis Cluster.
pub const SLOTS: u16 = 16_384;

/// The default of the connections' key.
pub const CONNECTIONS_DEFAULT: &str = "ws_conn:{id}";
/// The default of the timer's key.
pub const TIMER_DEFAULT: &str = "idle_timer:{id}";

/// What a template has in the place of the id.
const PLACE: &str = "{id}";
/// Before the count's name, in the name of our own key.
const MEMBERS: &str = "besom:conn:";
/// The marker of what has been observed.
const MARKER: &str = "besom:observed";

/// A key's name with a place for the id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    before: String,
    after: String,
}

impl Template {
    /// Reads `ws_conn:{id}`; braces around the place, as in `ws_conn:{{id}}`, make the id a
    /// hash tag. None: the place is not there exactly once.
    pub fn parse(text: &str) -> Option<Template> {
        let (before, after) = text.split_once(PLACE)?;
        let once = !after.contains(PLACE);
        once.then(|| Template { before: before.to_owned(), after: after.to_owned() })
    }

    fn of(&self, id: &str) -> String {
        format!("{}{id}{}", self.before, self.after)
    }
}

/// The keys of one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// How many connections: every proxy's.
    pub count: String,
    /// Ours, by name.
    pub members: String,
    /// The idle timer.
    pub timer: String,
}

impl Names {
    /// The names for an id.
    pub fn of(connections: &Template, timer: &Template, id: &str) -> Names {
        let count = connections.of(id);
        let members = match tag(&count) {
            Some(tag) => format!("{MEMBERS}{{{tag}}}:{count}"),
            None => format!("{MEMBERS}{{{count}}}"),
        };
        Names { count, members, timer: timer.of(id) }
    }

    /// Whether one script can hold the count and our connections on a cluster. An id with a
    /// `}` of its own may prevent it.
    pub fn fit(&self) -> bool {
        slot(&self.count) == slot(&self.members)
    }

    /// Whether the timer lies in the same slot.
    pub fn together(&self) -> bool {
        slot(&self.count) == slot(&self.timer)
    }
}

/// The name of the marker on a single server.
pub fn marker() -> String {
    MARKER.to_owned()
}

/// The name of a marker that lies in a slot.
pub fn marker_in(wanted: u16) -> String {
    // Each number's slot is as good as random: a few ten thousand trials at the most.
    let name = |n: u32| format!("{MARKER}:{{{n}}}");
    let n = (0..u32::MAX).find(|n| slot(&name(*n)) == wanted);
    name(n.unwrap_or_default())
}

/// The part of a key between its first braces, if there is something between them.
fn tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// The slot of a key.
pub fn slot(key: &str) -> u16 {
    crc16(tag(key).unwrap_or(key).as_bytes()) % SLOTS
}

/// CRC16 as the cluster's specification has it (XMODEM).
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
        // As `CLUSTER KEYSLOT` answers.
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

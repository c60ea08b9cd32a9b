//! Limits on the size of a guest's queries and messages that are not limits of its task.
//!
//! A database plans a statement before it examines a row; planning may take time quadratic in the
//! statement's length and may ignore interrupts. Therefore every list in a query is bounded here,
//! before anything is converted or sent.

use super::access::Refusal;
use super::bindings::besom::task::types as wit;

/// Maximum number of conditions in one query or guard.
pub(super) const CONDITIONS_MAX: usize = 64;
/// Maximum number of values with which the conditions of one query or guard compare columns.
pub(super) const VALUES_MAX: usize = 512;
/// Maximum size of a value that is compared with a column, in bytes.
pub(super) const COMPARED_BYTES_MAX: usize = 64 * 1024;

/// Maximum size of a message from the guest, in bytes; the rest is cut off. Messages are logged,
/// stored with items and runs, and reported, so they are cut before they are copied.
pub(super) const MESSAGE_BYTES_MAX: usize = 4 * 1024;
/// Maximum size of the code of a guest's error, in bytes; the rest is cut off.
pub(super) const CODE_BYTES_MAX: usize = 128;
/// How much of a rejected name is shown, in characters.
const NAME_CHARS_SHOWN: usize = 64;

/// Cuts a text off after `max` bytes, and releases the memory of the rest.
pub(super) fn cut(mut text: String, max: usize) -> String {
    if text.len() > max {
        text.truncate(text.floor_char_boundary(max));
        text.shrink_to_fit();
    }
    text
}

/// Cuts off the texts of a guest's error. Its details are not used by the host.
pub(super) fn error(error: wit::Error) -> wit::Error {
    wit::Error {
        code: cut(error.code, CODE_BYTES_MAX),
        message: cut(error.message, MESSAGE_BYTES_MAX),
        retryable: error.retryable,
        details: Vec::new(),
    }
}

/// The part of a rejected name that is shown.
pub(super) fn shown(name: &str) -> String {
    name.chars().take(NAME_CHARS_SHOWN).collect()
}

/// Rejects more than `max` of something.
pub(super) fn at_most(what: &str, count: usize, max: usize) -> Result<(), Refusal> {
    if count > max {
        return Err(Refusal::new("limit-exceeded", format!("{count} {what}: at most {max}")));
    }
    Ok(())
}

/// Rejects a list that names a column twice, because each occurrence would be sent and stored.
pub(super) fn once(columns: &[String]) -> Result<(), Refusal> {
    let mut names: Vec<&str> = columns.iter().map(String::as_str).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        None => Ok(()),
        Some(twice) => {
            let message = format!("a read names the column `{}` twice", twice[0]);
            Err(Refusal::new("invalid-request", message))
        }
    }
}

/// Checks the conditions of one query or guard.
pub(super) fn conditions(conditions: &[wit::Condition]) -> Result<(), Refusal> {
    at_most("conditions in one query", conditions.len(), CONDITIONS_MAX)?;
    at_most("values in the conditions of one query", tests(conditions), VALUES_MAX)?;
    conditions.iter().try_for_each(|condition| match &condition.test {
        wit::Test::Value(test) => value(&test.value),
        wit::Test::OneOf(all) | wit::Test::NoneOf(all) => all.iter().try_for_each(value),
        wit::Test::StartsWith(text) => compared(text.len()),
        wit::Test::Column(_) => Ok(()),
    })
}

/// The number of comparisons of all conditions; a list has as many as values.
pub(super) fn tests(conditions: &[wit::Condition]) -> usize {
    let of = |condition: &wit::Condition| match &condition.test {
        wit::Test::OneOf(all) | wit::Test::NoneOf(all) => all.len().max(1),
        wit::Test::Value(_) | wit::Test::Column(_) | wit::Test::StartsWith(_) => 1,
    };
    conditions.iter().map(of).sum()
}

/// The columns that conditions name.
pub(super) fn named(conditions: &[wit::Condition]) -> impl Iterator<Item = &str> {
    conditions.iter().flat_map(|condition| {
        let other = match &condition.test {
            wit::Test::Column(test) => Some(test.column.as_str()),
            _ => None,
        };
        std::iter::once(condition.column.as_str()).chain(other)
    })
}

/// Checks a value that is compared with a column.
pub(super) fn value(value: &wit::Value) -> Result<(), Refusal> {
    let bytes = match value {
        wit::Value::Text(text) | wit::Value::Decimal(text) | wit::Value::Json(text) => text.len(),
        wit::Value::Bytes(bytes) => bytes.len(),
        wit::Value::Null
        | wit::Value::Bool(_)
        | wit::Value::Integer(_)
        | wit::Value::Float(_)
        | wit::Value::Timestamp(_)
        | wit::Value::Date(_)
        | wit::Value::Uuid(_) => 0,
    };
    compared(bytes)
}

fn compared(bytes: usize) -> Result<(), Refusal> {
    at_most("bytes in a value that is compared", bytes, COMPARED_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_names_each_column_once() {
        let columns =
            |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(once(&columns(&["b", "a"])), Ok(()));
        let refused = once(&columns(&["a", "b", "a"])).unwrap_err();
        assert_eq!(refused.code, "invalid-request");
        assert_eq!(refused.message, "a read names the column `a` twice");
    }

    #[test]
    fn the_texts_of_an_error_are_cut_off() {
        let long = |character: &str| character.repeat(1 << 20);
        let field = wit::Field { name: long("n"), value: wit::Value::Null };
        let found = error(wit::Error {
            code: long("c"),
            // The limit is not at the border of a character.
            message: format!("m{}", long("é")),
            retryable: true,
            details: vec![field],
        });
        assert_eq!((found.code.len(), found.code.capacity()), (CODE_BYTES_MAX, CODE_BYTES_MAX));
        assert_eq!(found.message.len(), MESSAGE_BYTES_MAX - 1);
        assert!(found.message.capacity() <= MESSAGE_BYTES_MAX);
        assert!(found.retryable && found.details.is_empty());
        assert_eq!(cut("short".into(), 5), "short");
    }

    #[test]
    fn a_question_has_a_bounded_number_of_conditions_of_bounded_values() {
        let of_test = |test| wit::Condition { column: "id".into(), test };
        let condition = |value| {
            let comparison = wit::Comparison::Equal;
            of_test(wit::Test::Value(wit::ValueTest { comparison, value }))
        };
        let of = |count| vec![condition(wit::Value::Integer(1)); count];
        assert_eq!(conditions(&of(CONDITIONS_MAX)), Ok(()));
        let refused = conditions(&of(CONDITIONS_MAX + 1)).unwrap_err();
        assert_eq!(refused.code, "limit-exceeded");
        assert_eq!(refused.message, "65 conditions in one query: at most 64");
        let long = wit::Value::Text("x".repeat(COMPARED_BYTES_MAX + 1));
        let listed = wit::Test::NoneOf(vec![wit::Value::Null, long.clone()]);
        let begins = wit::Test::StartsWith("x".repeat(COMPARED_BYTES_MAX + 1));
        for long in [condition(long), of_test(listed), of_test(begins)] {
            assert_eq!(conditions(&[long]).unwrap_err().code, "limit-exceeded");
        }
        let half = of_test(wit::Test::OneOf(vec![wit::Value::Integer(1); VALUES_MAX / 2]));
        let (two, three) = (vec![half.clone(); 2], vec![half; 3]);
        assert_eq!(conditions(&two), Ok(()));
        let refused = conditions(&three).unwrap_err();
        assert_eq!(refused.message, "768 values in the conditions of one query: at most 512");
    }
}

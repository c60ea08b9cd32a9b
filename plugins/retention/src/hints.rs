//! What to write instead, for what people write who know SQL.

use besom_sdk::parse_duration_ms;

use crate::condition::Kind;
use crate::token::{Kind as Sort, Token};

/// Behind a name that no column has. `called`: an opening parenthesis follows.
pub(crate) fn column(name: &str, known: &[String], called: bool) -> String {
    let word = name.to_ascii_lowercase();
    let is_present = ["getdate", "localtime", "localtimestamp", "today", "sysdate"]
        .contains(&&*word)
        || word.starts_with("current_");
    let is_time = ["date", "datetime", "julianday", "strftime", "unixepoch", "interval"];
    match word.as_str() {
        _ if is_present => return ": the present is written `now`, as in `now - 30d`".to_owned(),
        _ if is_time.contains(&&*word) && called => {
            return ": there are no functions; the present is written `now`, as in `now - 30d`, and an \
                    instant as '2026-01-31'"
                .to_owned();
        }
        "exists" | "select" => {
            return ": there are no queries, only tests of the row's own columns".into();
        }
        "true" => return ": to mean every row, remove the setting".to_owned(),
        "where" => return ": leave the word `where` out".to_owned(),
        _ if called => return ": there are no functions".to_owned(),
        _ => {}
    }
    let all = known.join(", ");
    match nearest(name, known) {
        Some(near) => format!(": did you mean `{near}`? (the columns are {all})"),
        None => format!("; the columns are {all}"),
    }
}

/// Behind what is found in place of `=` and the other operators.
pub(crate) fn operator(token: Option<&Token<'_>>, column: &str) -> String {
    let Some(token) = token else { return String::new() };
    let word = token.text.to_ascii_lowercase();
    let like = |word: &str| ["like", "ilike", "glob", "similar", "regexp", "match"].contains(&word);
    match (token.sort, word.as_str()) {
        (Sort::Name, word) if like(word) => {
            ": there are no patterns; list the texts, as in `in ('draft', 'copy')`".to_owned()
        }
        (Sort::Name, "between") => format!(": write `{column} >= ... and {column} <= ...`"),
        (Sort::Name, "isnull") => format!(": write `{column} is null`"),
        (Sort::Name, "notnull") => format!(": write `{column} is not null`"),
        (Sort::Symbol, "+" | "-") => {
            ": only the other side is computed, as in `at < now - 30d`".to_owned()
        }
        (Sort::Symbol, ")") => format!(": a column alone is no test; write `{column} = true`"),
        _ => String::new(),
    }
}

/// Behind a value that does not fit a column of the kind.
pub(crate) fn value(kind: Kind, token: &Token<'_>) -> String {
    let text = token.text.as_ref();
    let is_number = |text: &str| !text.is_empty() && text.parse::<f64>().is_ok();
    match (kind, token.sort) {
        (Kind::Text, Sort::Number) => format!(": write '{text}'"),
        (Kind::Text, Sort::Name) if matches!(text, "true" | "false") => format!(": write '{text}'"),
        (Kind::Bool, _) => ": write true or false".to_owned(),
        (Kind::Integer | Kind::Float | Kind::Decimal, Sort::Text) if is_number(text) => {
            format!(": write {text} without quotes")
        }
        (Kind::Timestamp | Kind::Date, Sort::Text)
            if matches!(&*text.to_ascii_lowercase(), "now" | "now()") =>
        {
            ": write now without quotes".to_owned()
        }
        (Kind::Timestamp | Kind::Date, Sort::Text) if parse_duration_ms(text).is_some() => {
            format!(": a time ago is written `now - {text}`")
        }
        (Kind::Timestamp | Kind::Date, Sort::Number) if text.parse::<f64>().is_err() => {
            let span = text.trim_start_matches('-');
            format!(": a time ago is written `now - {span}`")
        }
        (Kind::Timestamp | Kind::Date, Sort::Number) => {
            ": it is written in quotes, as '2026-01-31', or as `now - 30d`".to_owned()
        }
        _ => String::new(),
    }
}

/// Behind a character that means nothing.
pub(crate) fn sign(c: char, rest: &str) -> &'static str {
    match c {
        '!' => ": write `not`",
        '&' => ": write `and`",
        '|' => ": write `or`",
        '~' => ": there are no patterns; list the texts, as in `in ('draft', 'copy')`",
        '`' | '[' => ": a name is quoted as \"name\"",
        ':' if rest.starts_with("::") => ": there are no casts",
        '.' => ": a column is named without its table",
        ';' => ": leave it out",
        '*' | '/' | '%' => ": there is no arithmetic but `now - 30d`",
        '\u{2018}' | '\u{2019}' | '\u{201c}' | '\u{201d}' => {
            ": a text is written in straight quotes, as 'text'"
        }
        _ => "",
    }
}

/// The most similar name, if at most a third of it differs.
pub(crate) fn nearest<'a>(name: &str, known: &'a [String]) -> Option<&'a str> {
    let name = name.to_lowercase();
    let scored = known.iter().map(|known| (distance(&name, &known.to_lowercase()), known));
    let near = scored.filter(|(distance, known)| {
        let length = known.chars().count();
        *distance <= length.max(3) / 3 && *distance < length
    });
    near.min_by_key(|(distance, _)| *distance).map(|(_, known)| known.as_str())
}

/// How many characters have to be inserted, removed or replaced.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, c) in a.chars().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, d) in b.iter().enumerate() {
            let replaced = before + usize::from(c != *d);
            before = row[j + 1];
            row[j + 1] = replaced.min(before + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

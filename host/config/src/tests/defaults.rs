//! The defaults that the manual names.

use super::*;

/// The default of every key that the manual's table of limits names, as the table writes it.
#[test]
fn the_manual_names_the_defaults() {
    let shown = |default: &str| default.trim_matches('"').to_owned();
    let mut known = std::collections::BTreeMap::new();
    for section in sections::SECTIONS {
        for key in section.keys {
            known.insert(format!("{}.{}", section.name, key.name), shown(key.default));
        }
    }
    for key in task::RetryTable::KEYS {
        known.insert(format!("retry.{}", key.name), shown(key.default));
    }
    for key in limits::LimitsTable::KEYS {
        known.insert(format!("limits.{}", key.name), shown(key.default));
    }
    for key in task::TaskTable::KEYS {
        known.insert(key.name.to_owned(), shown(key.default));
    }
    let manual = include_str!("../../../../docs/reference.md");
    let (_, rest) = manual.split_once("\n## Limits\n").expect("the section");
    let (section, _) = rest.split_once("\n## ").expect("the next one");
    let mut compared = 0;
    for row in section.lines().filter(|line| line.starts_with("| `")) {
        let mut cells = row.split('|').skip(1);
        let (keys, defaults) = (cells.next().unwrap_or(""), cells.next().unwrap_or(""));
        let keys: Vec<&str> = keys.split(", ").map(|key| key.trim().trim_matches('`')).collect();
        let defaults: Vec<&str> = defaults.split(", ").map(str::trim).collect();
        assert_eq!(keys.len(), defaults.len(), "{row}");
        let (table, _) = keys[0].split_once('.').expect("a table");
        for (key, default) in keys.iter().zip(defaults) {
            let name = if key.contains('.') { (*key).to_owned() } else { format!("{table}.{key}") };
            // The settings belong to the plugins.
            if table != "settings" {
                let of_task = key.strip_prefix("tasks.NAME.").unwrap_or(key);
                let expected = known.get(&name).or_else(|| known.get(of_task));
                assert_eq!(Some(&default.replace(' ', "")), expected, "{name}");
                compared += 1;
            }
        }
    }
    assert!(compared > 25, "{compared} defaults were compared");
}

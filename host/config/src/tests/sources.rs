//! The file, variables, flags and defaults: which counts, and what is refused of each.

use super::*;

#[test]
fn a_url_is_no_path_and_its_password_is_not_shown() {
    check(
        "[store]\npath = \"postgres://u:pw@h/d\"\n",
        r#"
besom.toml:2:8: error: store.path is a URL, not a file
  2 | path = "postgres://u:**@h/d"
    |        ^^^^^^^^^^^^^^^^^^^^^ set store.url to it instead
"#,
    );
}

#[test]
fn the_environment_and_flags_are_judged_like_the_file() {
    let overrides = Overrides {
        variables: vec![
            ("BESOM_LEASE_TTLL".into(), "15s".into()),
            ("BESOM_LEASE_RENEW".into(), "five".into()),
            ("BESOM_SHARED_DATA".into(), "../data".into()),
        ],
        flags: vec![
            "lease.ttl=1ms".into(),
            "store.pth=x".into(),
            "nothing".into(),
            "tasks.a.lane=due".into(),
        ],
    };
    let problems = load_with("", &overrides).err().map(|p| p.to_string());
    same(
        &problems.unwrap_or_default(),
        r#"
environment: error: unknown variable `BESOM_LEASE_TTLL`
  BESOM_LEASE_TTLL=15s
  fix: did you mean `BESOM_LEASE_TTL`?
environment: error: `five` is not a duration
  BESOM_LEASE_RENEW=five
  fix: write an integer and a unit, such as "250ms", "30s", "15m", "24h" or "7d"
flags: error: 1ms is below the minimum
  --set lease.ttl=1ms
  fix: the minimum is 1s
flags: error: unknown key `store.pth`
  --set store.pth=x
  fix: did you mean `store.path`?
flags: error: the value is missing
  --set nothing
  fix: write SECTION.KEY=VALUE
flags: error: `tasks.a.lane` is not a key of a section
  --set tasks.a.lane=due
  fix: set a key of the sections store, node, clock, lease, activity, api, host, retention, runtime, plugins, coordination, ring, delivery; all others, such as tasks, are set in the file
"#,
    );
}

/// A line of the file that they override is not at fault.
#[test]
fn a_value_above_the_file_is_judged_at_its_own_place() {
    let text = "[store]\nurl = \"postgres://u@h/d\"\n[lease]\nttl = \"15s\"\nrenew = \"5s\"\n";
    let overrides = Overrides {
        variables: vec![("BESOM_LEASE_RENEW".into(), "14s".into())],
        flags: vec!["store.url=postgres://u:pw@h/d".into(), "store.path=a.db".into()],
    };
    let problems = load_with(text, &overrides).err().map(|p| p.to_string());
    same(
        &problems.unwrap_or_default(),
        r#"
environment: error: lease.renew is 14s, which is more than a third of lease.ttl (15s)
  BESOM_LEASE_RENEW=14s
  fix: set lease.renew to at most 5s
flags: error: store.path and store.url are both set, but a store is one database
  --set store.url=postgres://u:**@h/d
  fix: remove store.path, or this
flags: error: store.url contains a password
  --set store.url=postgres://u:**@h/d
  fix: put the password into a file (mode 0600) and set store.password_file to it; write an `@` after the host as %40
"#,
    );
}

#[test]
fn flags_are_above_the_environment_which_is_above_the_file() {
    let overrides = |flags: &[&str]| Overrides {
        variables: vec![("BESOM_STORE_PATH".into(), "env.db".into())],
        flags: flags.iter().map(|f| (*f).to_owned()).collect(),
    };
    let path = |overrides| {
        let config = load_with("[store]\npath = \"file.db\"\n", &overrides).expect("valid");
        config.store.path.clone()
    };
    assert_eq!(path(Overrides::default()), Path::new("file.db"));
    assert_eq!(path(overrides(&[])), Path::new("env.db"));
    assert_eq!(path(overrides(&["store.path=flag.db"])), Path::new("flag.db"));
}

/// A store is one database: its two keys are one value.
#[test]
fn a_store_of_one_kind_replaces_one_of_the_other_that_is_below_it() {
    fn store(text: &str, variables: &[(&str, &str)], flags: &[&str]) -> Result<String, String> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let overrides = Overrides {
            variables: variables.iter().map(owned).collect(),
            flags: flags.iter().map(|f| (*f).to_owned()).collect(),
        };
        let config = load_with(text, &overrides).map_err(|problems| problems.to_string())?;
        let path = config.store.path.display().to_string();
        Ok(config.store.url.clone().unwrap_or(path))
    }
    let (file, server) = ("[store]\npath = \"file.db\"\n", "[store]\nurl = \"postgres://u@h/d\"\n");
    let url = "postgres://u@h/other";
    let (by_flag, by_variable) = (format!("store.url={url}"), [("BESOM_STORE_URL", url)]);
    assert_eq!(store(file, &[], &[&by_flag]).as_deref(), Ok(url));
    assert_eq!(store(file, &by_variable, &[]).as_deref(), Ok(url));
    assert_eq!(store(server, &[], &["store.path=a.db"]).as_deref(), Ok("a.db"));
    assert_eq!(store(file, &by_variable, &["store.path=a.db"]).as_deref(), Ok("a.db"));
    assert_eq!(store(file, &[("BESOM_STORE_PATH", "a.db")], &[&by_flag]).as_deref(), Ok(url));
    for (text, flags) in [
        (format!("{file}url = \"{url}\"\n"), vec![]),
        (String::new(), vec![by_flag.as_str(), "store.path=a.db"]),
    ] {
        let said = store(&text, &[], &flags).expect_err("two databases");
        assert!(said.contains("store.path and store.url are both set"), "{said}");
    }
}

#[test]
fn an_empty_file_is_the_defaults_and_runs_nothing() {
    for text in ["", "\u{feff}", "\r\n", "# nothing\n"] {
        let config = load(text).expect("valid");
        assert!(config.tasks.is_empty());
        assert_eq!(config.store.path, Path::new("besom.db"));
        assert_eq!(config.activity.socket, Path::new("besom-activity.sock"));
        assert_eq!(config.lease.ttl, Duration::from_secs(15));
        let activity = besom_core::activity::Timeouts {
            idle: config.activity.idle_timeout,
            heartbeat: config.activity.heartbeat_timeout,
        };
        assert_eq!(activity, besom_core::activity::Timeouts::default());
        assert_eq!(config.retention.history, Duration::from_secs(30 * 86_400));
        assert_eq!(*config.collections, default_collections());
    }
}

#[test]
fn paths_are_meant_from_the_directory_of_the_file() {
    let parsed = RawConfig::parse(
        "[store]\npath = \"data/b.db\"\n[api]\nsocket = \"/run/b.sock\"\n",
        Path::new("/etc/besom/besom.toml"),
        &Overrides::default(),
    );
    let config = parsed.outline(&default_collections()).finish().expect("valid");
    assert_eq!(config.store.path, Path::new("/etc/besom/data/b.db"));
    assert_eq!(config.activity.socket, Path::new("/etc/besom/data/besom-activity.sock"));
    assert_eq!(config.api.socket, Path::new("/run/b.sock"));
    assert_eq!(config.plugins.dir, Path::new("/etc/besom/plugins.d"));
}

#[test]
fn a_url_with_a_password_is_refused_and_not_shown() {
    for url in [
        "postgres://u:S3cr3t@h/d",
        "postgres://h/d?user=u&password=S3cr3t",
        "postgres://h/d?user=u&pass%77ord=S3cr3t",
        "postgres://u:x'S3cr3t@h/d",
        "postgres://u:x`S3cr3t@h/d",
        "postgres://u:x<S3cr3t@h/d",
        "postgres://u:x S3cr3t@h/d",
        "postgres://u:x?S3cr3t@h/d",
        "host=h user=u password = S3cr3t",
        "host=h user=u password='x S3cr3t'",
        // The driver does not know the parameter.
        "postgres://u:S3cr3t@h/d?unknown=1",
    ] {
        let said = load(&format!("[store]\nurl = \"{url}\"\n")).expect_err("refused").to_string();
        assert!(said.contains("store.url contains a password") && said.contains("password_file"));
        assert!(!said.contains("S3cr3t"), "{said}");
    }
    for url in [
        "postgres://u@h/d",
        "postgres://db:5432/app?user=svc%40corp",
        "host=h user=u application_name='no password here'",
    ] {
        load(&format!("[store]\nurl = \"{url}\"\n")).expect("none is in it");
    }
    let url = "postgres://u:S3cr3t@h/d";
    let variables = vec![("BESOM_STORE_URL".to_owned(), url.to_owned())];
    let by_variable = Overrides { variables, ..Overrides::default() };
    let by_flag = Overrides { flags: vec![format!("store.url={url}")], ..Overrides::default() };
    for overrides in [by_variable, by_flag] {
        let said = load_with("", &overrides).expect_err("refused").to_string();
        assert!(
            said.contains("store.url contains a password") && !said.contains("S3cr3t"),
            "{said}"
        );
    }
    // The driver takes the text before an `@` as user and password, wherever it is.
    let said = load("[store]\nurl = \"postgres://db:5432/app?user=svc@corp\"\n");
    let said = said.expect_err("refused").to_string();
    assert!(said.contains("write an `@` after the host as %40"), "{said}");
    // A serialised configuration contains no password, in whatever form it was written.
    let store = super::sections::Store {
        url: Some("postgres://u:S3cr3t@h/d".into()),
        ..super::sections::Store::default()
    };
    let json = serde_json::to_string(&store).unwrap();
    assert!(json.contains("postgres://u:******@h/d"), "{json}");
}

#[test]
fn a_tcp_address_beyond_this_machine_needs_tls() {
    let api = |more: &str| {
        format!("[api]\ntoken_file = \"t\"\n{more}\n[activity]\ntoken_file = \"t\"\n{more}\n")
    };
    load(&api("tcp = \"127.0.0.1:7350\"")).expect("it is of this machine");
    load(&api("tcp = \"0.0.0.0:7350\"\ntls_cert = \"c\"\ntls_key = \"k\"")).expect("it has TLS");
    let said = load(&api("tcp = \"0.0.0.0:7350\"")).expect_err("refused");
    assert_eq!(said.0.len(), 2, "{said}");
    assert!(said.to_string().contains("tokens would be sent without encryption"), "{said}");
    let half = load(&api("tcp = \"[::1]:7350\"\ntls_key = \"k\"")).expect_err("half of it");
    assert!(half.to_string().contains("api.tls_key requires api.tls_cert"), "{half}");
}

#[test]
fn a_schema_name_that_the_server_would_cut_is_refused() {
    let of = |bytes: usize| load(&format!("[store]\nschema = \"{}\"\n", "s".repeat(bytes)));
    assert!(of(63).is_ok());
    let said = of(64).unwrap_err().to_string();
    assert!(said.contains("besom.toml:2:") && said.contains("at most 63 bytes"), "{said}");
}

#[test]
fn the_template_is_a_valid_configuration() {
    let read = |text: &str| RawConfig::parse(text, Path::new("besom.toml"), &Overrides::default());
    let running = read(&template(&template::Template::default().with_built_in()));
    assert_eq!(running.problems(), []);
    assert_eq!(
        running.plugins(),
        ["client-deactivation", "compaction", "share-expiry", "ttl-transitions"]
    );
    let text = template(&template::Template::default());
    let parsed = read(&text);
    assert_eq!(parsed.problems(), []);
    assert_eq!(parsed.plugins(), Vec::<String>::new());
    // Every key that is commented out shows its default, if it has one.
    let shown: String = text
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(rest) if rest.contains(" = ") && !rest.contains('…') && !rest.contains("  ") => {
                rest
            }
            _ => line,
        })
        .take_while(|line| !line.starts_with("# Topics:"))
        .map(|line| format!("{line}\n"))
        .filter(|line| !line.contains("relative path") && !line.contains("plugin = \"NAME"))
        .collect();
    assert_eq!(read(&shown).sections(), read("").sections());
}

#[test]
fn the_schema_knows_every_key_and_its_default() {
    let schema = schema();
    let ttl = &schema["properties"]["lease"]["properties"]["ttl"];
    assert_eq!(ttl["default"], "15s");
    for section in sections::SECTIONS {
        for key in section.keys {
            let property = &schema["properties"][section.name]["properties"][key.name];
            assert!(property["description"].is_string(), "{}.{}", section.name, key.name);
            assert_ne!(property.get("default"), Some(&serde_json::Value::Null), "{}", key.name);
        }
    }
    let task = &schema["properties"]["tasks"]["additionalProperties"];
    assert_eq!(task["properties"]["overlap"]["enum"][1], "queue");
}

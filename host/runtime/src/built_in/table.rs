//! The table of built-in plugins: all that the engine knows of each. The build script includes this
//! file too, so it must not depend on anything.

/// An entry of the table of built-in plugins.
pub struct Entry {
    /// Name of the plugin, as used in tasks.
    pub name: &'static str,
    /// Whether instructions are counted by default. Counting takes about a fifth of the time, so a trusted
    /// plugin that computes for long does without.
    pub counts: bool,
    /// Whether its code is compiled in every build, not only in an optimized one: a small plugin, by which
    /// the tests see that embedded code is used.
    pub ahead: bool,
    /// Its task in a new configuration file; `None`: it needs an endpoint that only the user can name.
    pub task: Option<Task>,
    /// What no other plugin reads of the entity model: a collection, one of its columns, and an index over
    /// that column. It is mapped only for tasks with this plugin.
    pub alone: &'static [(&'static str, &'static str, &'static str)],
    /// Its guards for the absence of rows by a column that the anchor of the collection does not cover.
    pub absences: &'static [Absence],
}

/// A task of a new configuration file.
pub struct Task {
    /// What it does; the lines after the first begin with `# `.
    pub doc: &'static str,
    /// Its schedule.
    pub schedule: &'static str,
    /// Its settings, as TOML.
    pub settings: &'static [(&'static str, &'static str)],
}

/// A guard for the absence of rows, by a column that the anchor of the collection does not cover.
pub struct Absence {
    /// The modes (settings `mode_FORMAT`) that use the guard; empty means all.
    pub modes: &'static [&'static str],
    /// The collection whose rows must be absent.
    pub collection: &'static str,
    /// The column that the guard compares.
    pub column: &'static str,
    /// The collection whose row the guard locks.
    pub anchor: &'static str,
}

/// All built-in plugins.
pub static TABLE: &[Entry] = &[
    Entry {
        name: "compaction",
        counts: false,
        ahead: false,
        task: Some(Task {
            doc: "Replaces the change log of a document by one equivalent change. Its settings have a mode\n\
                  # for each format: mode_yjs, mode_loro, mode_automerge = \"merge\". \"reset\" (Yjs, Automerge)\n\
                  # starts a new log while no client is attached; clients must check the epoch. \"trim\" (Loro)\n\
                  # drops what every attached client has seen. Deleted content of Yjs documents is kept unless\n\
                  # deleted_content = \"collect\" declares that no client has `gc: false`.",
            schedule: "@every 30s",
            settings: &[
                ("min_changes", "1000"),
                ("projects_per_run", "100"),
                ("candidates_per_project", "500"),
            ],
        }),
        alone: &[],
        absences: &[Absence {
            modes: &["trim", "reset"],
            collection: "attachments",
            column: "state",
            anchor: "documents",
        }],
    },
    Entry {
        name: "client-deactivation",
        counts: true,
        ahead: false,
        task: Some(Task {
            doc: "Detaches and deactivates clients that have been idle for too long.",
            schedule: "@every 30s",
            settings: &[("projects_per_run", "100"), ("candidates_per_project", "500")],
        }),
        alone: &[],
        absences: &[Absence {
            modes: &[],
            collection: "attachments",
            column: "state",
            anchor: "clients",
        }],
    },
    Entry {
        name: "share-expiry",
        counts: true,
        ahead: true,
        task: Some(Task {
            doc: "Ends shares at the moment they expire, after their limit_seconds or else after `limit`. A run\n\
                  # plans what expires within the next day, or within a tenth of the shortest limit if that is\n\
                  # less than a day; the shortest limit is limit, or limit_min if shares have their own limits. A\n\
                  # share that is shorter than the time between two runs may end late: use a shorter schedule.",
            schedule: "@hourly",
            settings: &[("limit", "\"7d\""), ("limit_min", "\"0s\"")],
        }),
        alone: &[],
        absences: &[],
    },
    Entry {
        name: "ttl-transitions",
        counts: true,
        ahead: false,
        task: Some(Task {
            doc: "Moves idle workspaces to standby, and unused ones to the archive.",
            schedule: "@every 60s",
            settings: &[],
        }),
        alone: &[],
        absences: &[],
    },
    Entry {
        name: "reconciler",
        counts: true,
        ahead: false,
        task: None,
        alone: &[("workspaces", "unsettled", "by_unsettled")],
        absences: &[],
    },
    Entry { name: "retention", counts: true, ahead: false, task: None, alone: &[], absences: &[] },
];

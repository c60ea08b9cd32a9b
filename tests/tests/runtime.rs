//! Guarantee 6 of the README: a hostile or broken plugin harms only its own task. The plugin is
//! `tests/plugins/hostile`, whose item keys name its misdeeds.

mod runtime {
    pub mod bounds;
    pub mod faults;
    pub mod host;
    pub mod load;
    pub mod reads;
    pub mod verdicts;
}

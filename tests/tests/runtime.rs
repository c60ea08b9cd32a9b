//! Promise 6: a hostile or broken plugin hurts only itself. The plugin is
//! `tests/plugins/hostile`, whose item keys name its misdeeds.

mod runtime {
    pub mod bounds;
    pub mod faults;
    pub mod host;
    pub mod load;
    pub mod reads;
    pub mod verdicts;
}

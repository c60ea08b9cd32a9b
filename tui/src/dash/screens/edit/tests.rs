//! The screen as a whole.

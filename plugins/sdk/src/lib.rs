//! Besom.

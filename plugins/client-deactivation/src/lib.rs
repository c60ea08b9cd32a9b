//! client-deactivation.

//! ttl-transitions.

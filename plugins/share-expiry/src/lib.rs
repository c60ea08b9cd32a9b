//! share-expiry.

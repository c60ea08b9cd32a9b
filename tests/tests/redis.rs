//! Activity in Redis, on real servers: the port's suite, the keys of proxies, and the events that
//! make activity unknown.

mod redis {
    mod cluster;
    mod commit;
    mod literal;
    mod refusals;
    mod unknown;
}

mod single {
    use besom_tests::adapters::redis::observed_single;

    besom_tests::activity_conformance!(observed_single);
}

mod clustered {
    use besom_tests::adapters::redis::observed_cluster;

    besom_tests::activity_conformance!(observed_cluster);
}

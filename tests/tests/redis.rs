//! Redis, on real servers: the port's suite for activity, the keys of proxies, the events that make
//! activity unknown, and streams as brokers.

mod redis {
    mod cluster;
    mod commit;
    mod literal;
    mod refusals;
    mod streams;
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

//! Workspaces in use: real hosts, real WebSocket clients, activity in Redis and in the store.

mod activity {
    mod end;
    mod gate;
    mod live;
    mod site;
    mod tab;
    mod wake;
}

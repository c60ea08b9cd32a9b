//! Workspaces from RUNNING to their archive and back: the real components, a real store, real HTTP
//! to a stand-in for the orchestrator, and a user who changes the desired state.

mod reconcile {
    mod choice;
    mod cycle;
    mod estate;
    mod interleavings;
    mod mishaps;
}

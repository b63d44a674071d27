//! Runs the standard policies over the shared tables of cases. A package apart, so that each policy
//! can be copied out of this repository without its neighbours.

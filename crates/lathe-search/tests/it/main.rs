//! Integration tests of searches on tiny tasks whose answers are known.

mod differentiable;

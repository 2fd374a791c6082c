//! Integration tests of proxies and of differentiable searches.

mod contract;
mod differentiable;
mod proxies;

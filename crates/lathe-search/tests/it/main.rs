//! Integration tests of proxies and of differentiable searches.

mod differentiable;
mod proxies;

//! What a backbone has for its blocks in a pass, and what blocks tell of one, each by its type: whoever adds a block
//! that needs or tells something new changes nothing here.

use crate::build::{self, BuildBackbone};
use lathe_core::Frame;
use lathe_ops::dropout::Dropout;
use std::any::Any;
use std::borrow::Cow;
use std::sync::{Arc, Mutex};

/// Something that a backbone computes once per pass and blocks ask for by its type.
pub trait Shared: Any + Send + Sync {
    /// Sets every number of it, for scores that are taken of inputs of ones.
    fn fill(&mut self, value: f32);
}

/// All that a backbone has for blocks in a pass.
#[derive(Default)]
pub struct Context {
    items: Vec<Box<dyn Shared>>,
}

impl Context {
    /// Adds something.
    pub fn insert(&mut self, item: impl Shared) {
        self.items.push(Box::new(item));
    }

    /// What is there of a type.
    pub fn get<T: Shared>(&self) -> Option<&T> {
        self.items.iter().find_map(|item| (&**item as &dyn Any).downcast_ref())
    }

    /// Sets every number of everything.
    pub fn fill(&mut self, value: f32) {
        self.items.iter_mut().for_each(|item| item.fill(value));
    }
}

/// Length, width and stack.
type Here = (usize, usize, Option<&'static str>);

/// What a backbone has for blocks in a pass, for each width and length that hidden states have in it.
pub(crate) struct Contexts<'a> {
    builder: &'static dyn BuildBackbone,
    frame: Cow<'a, Frame>,
    dropout: Dropout,
    /// What is done to each.
    change: Option<fn(&mut Context)>,
    /// What there is for each place.
    known: Mutex<Vec<(Here, Arc<Context>)>>,
}

impl<'a> Contexts<'a> {
    /// Of a pass whose hidden states are dropped like that.
    pub fn new(frame: Cow<'a, Frame>, dropout: Dropout, change: Option<fn(&mut Context)>) -> Self {
        Self { builder: build::of_backbone(frame.backbone), frame, dropout, change, known: Mutex::default() }
    }

    /// For `len` tokens of a width in a stack.
    pub fn of(&self, len: usize, width: usize, stack: Option<&'static str>) -> Arc<Context> {
        let (mut known, here) =
            (self.known.lock().expect("nothing panics while it holds the list"), (len, width, stack));
        if let Some((_, context)) = known.iter().find(|known| known.0 == here) {
            return context.clone();
        }
        let mut frame = Cow::Borrowed(&*self.frame);
        if width != frame.d_model as usize {
            frame.to_mut().d_model = width as u32;
        }
        if let Some(stack) = stack {
            frame.to_mut().set_stack(stack);
        }
        let mut context = self.builder.context(&frame, len, self.dropout);
        if let Some(change) = self.change {
            change(&mut context);
        }
        let context = Arc::new(context);
        known.push((here, context.clone()));
        context
    }
}

/// What layers told of a pass, in the order of the computation.
#[derive(Default)]
pub struct Reports {
    items: Mutex<Vec<Box<dyn Any + Send>>>,
}

impl Reports {
    /// Notes something.
    pub fn add(&self, item: impl Any + Send) {
        self.items.lock().expect("nothing panics while it holds the list").push(Box::new(item));
    }

    /// Takes everything of a type.
    pub fn take<T: Any>(&self) -> Vec<T> {
        let mut items = self.items.lock().expect("nothing panics while it holds the list");
        let (taken, rest) = std::mem::take(&mut *items).into_iter().partition(|item| (**item).is::<T>());
        *items = rest;
        let taken: Vec<Box<dyn Any + Send>> = taken;
        taken.into_iter().filter_map(|item| item.downcast().ok()).map(|item| *item).collect()
    }
}

//! Views of matrices in slices.

use std::marker::PhantomData;

/// A matrix that is read, with any strides.
#[derive(Clone, Copy)]
pub struct Mat<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl<'a> Mat<'a> {
    /// A row-major matrix that fills the slice.
    pub fn new(data: &'a [f32], rows: usize, cols: usize) -> Self {
        assert_eq!(data.len(), rows * cols, "a matrix of {rows} by {cols}");
        Self { data, rows, cols, row_stride: cols, col_stride: 1 }
    }

    /// A row-major matrix whose rows begin `stride` apart.
    pub fn with_stride(data: &'a [f32], rows: usize, cols: usize, stride: usize) -> Self {
        assert!(cols <= stride && (rows == 0 || data.len() >= (rows - 1) * stride + cols));
        Self { data, rows, cols, row_stride: stride, col_stride: 1 }
    }

    /// The transpose.
    pub fn t(self) -> Self {
        Self { rows: self.cols, cols: self.rows, row_stride: self.col_stride, col_stride: self.row_stride, ..self }
    }

    /// `cols` columns from `first` on.
    pub fn cols_from(self, first: usize, cols: usize) -> Self {
        assert!(first + cols <= self.cols);
        let data = if self.rows * cols == 0 { &[] } else { &self.data[first * self.col_stride..] };
        Self { data, cols, ..self }
    }

    /// `rows` rows from `first` on.
    pub fn rows_from(self, first: usize, rows: usize) -> Self {
        self.t().cols_from(first, rows).t()
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// One entry.
    pub fn at(&self, row: usize, col: usize) -> f32 {
        self.data[row * self.row_stride + col * self.col_stride]
    }

    /// Whether the entries of a row stand side by side.
    pub(crate) fn row_major(&self) -> bool {
        self.col_stride == 1
    }

    /// A block: where it begins, and its [`stride`](Self::stride).
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub(super) fn block(&self, row: usize, col: usize, rows: usize, cols: usize) -> (*const f32, usize) {
        assert!(row + rows <= self.rows && col + cols <= self.cols && rows * cols > 0);
        debug_assert!(self.row_stride == 1 || self.col_stride == 1);
        let last = (row + rows - 1) * self.row_stride + (col + cols - 1) * self.col_stride;
        let block = &self.data[row * self.row_stride + col * self.col_stride..=last];
        (block.as_ptr(), self.stride())
    }

    /// Floats from a line to the next, a line being a row where the matrix is row-major and a column where it is not.
    pub(super) fn stride(&self) -> usize {
        if self.row_major() { self.row_stride } else { self.col_stride }
    }

    /// `len` entries of a row, where the matrix is row-major.
    pub(crate) fn row(&self, row: usize, col: usize, len: usize) -> &'a [f32] {
        debug_assert!(self.row_major());
        &self.data[row * self.row_stride + col..][..len]
    }

    /// `len` entries of a column, where the matrix is column-major.
    pub(super) fn col(&self, row: usize, col: usize, len: usize) -> &'a [f32] {
        debug_assert!(self.row_stride == 1);
        &self.data[col * self.col_stride + row..][..len]
    }
}

/// A row-major matrix that is written.
pub struct MatMut<'a> {
    data: *mut f32,
    rows: usize,
    cols: usize,
    stride: usize,
    /// Floats from an entry to what is wanted together with it; 0 for nothing.
    beside: isize,
    owner: PhantomData<&'a mut [f32]>,
}

// SAFETY: a MatMut is a unique borrow of its entries, as `&mut [f32]` is.
unsafe impl Send for MatMut<'_> {}

impl<'a> MatMut<'a> {
    /// A matrix that fills the slice.
    pub fn new(data: &'a mut [f32], rows: usize, cols: usize) -> Self {
        assert_eq!(data.len(), rows * cols, "a matrix of {rows} by {cols}");
        Self::with_stride(data, rows, cols, cols)
    }

    /// A matrix whose rows begin `stride` apart.
    pub fn with_stride(data: &'a mut [f32], rows: usize, cols: usize, stride: usize) -> Self {
        assert!(cols <= stride && (rows == 0 || data.len() >= (rows - 1) * stride + cols));
        Self { data: data.as_mut_ptr(), rows, cols, stride, beside: 0, owner: PhantomData }
    }

    /// Says that an array of the same layout will be wanted when entries are complete: kernels fetch it meanwhile.
    pub(super) fn beside(self, array: *const f32) -> Self {
        Self { beside: (array as isize - self.data as isize) / size_of::<f32>() as isize, ..self }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// `len` entries of a row.
    pub fn row(&mut self, row: usize, col: usize, len: usize) -> &mut [f32] {
        assert!(row < self.rows && col + len <= self.cols);
        // SAFETY: the entries lie inside the matrix, which is borrowed uniquely for as long as the result.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(row * self.stride + col), len) }
    }

    /// Sets every entry.
    pub fn fill(&mut self, value: f32) {
        for row in 0..self.rows {
            self.row(row, 0, self.cols).fill(value);
        }
    }

    /// Asks for the cache lines of all rows, which will be written.
    pub(crate) fn fetch(&self) {
        #[cfg(target_arch = "x86_64")]
        for row in 0..self.rows {
            for col in (0..self.cols).step_by(16) {
                let place = self.data.wrapping_add(row * self.stride + col);
                // SAFETY: a hint, which every x86-64 CPU has, and which may point anywhere.
                unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_ET0 }>(place.cast()) };
            }
        }
    }

    /// A block of the matrix.
    pub fn block(&mut self, row: usize, col: usize, rows: usize, cols: usize) -> MatMut<'_> {
        assert!(row + rows <= self.rows && col + cols <= self.cols);
        // SAFETY: the block lies inside the matrix, which stays borrowed uniquely for as long as the block.
        let data = unsafe { self.data.add(row * self.stride + col) };
        MatMut { data, rows, cols, stride: self.stride, beside: self.beside, owner: PhantomData }
    }

    /// Cuts the matrix at rows and columns (ends of the parts): each part with its first row and column.
    pub fn split(self, row_ends: &[usize], col_ends: &[usize]) -> Vec<(usize, usize, MatMut<'a>)> {
        let mut parts = Vec::with_capacity(row_ends.len() * col_ends.len());
        let mut row = 0;
        for &row_end in row_ends {
            let mut col = 0;
            for &col_end in col_ends {
                assert!(row <= row_end && row_end <= self.rows && col <= col_end && col_end <= self.cols);
                // SAFETY: the part lies inside the matrix, and no two parts share an entry, since the ends
                // increase; `self` is consumed, so that nothing else reaches the entries.
                let data = unsafe { self.data.add(row * self.stride + col) };
                parts.push((row, col, MatMut { data, rows: row_end - row, cols: col_end - col, ..self }));
                col = col_end;
            }
            row = row_end;
        }
        parts
    }

    /// Where the matrix begins and how far its rows are apart, for a kernel.
    pub(crate) fn raw(&mut self) -> (*mut f32, usize) {
        (self.data, self.stride)
    }

    /// Where what is wanted together with it begins; where it begins itself, if nothing is.
    pub(super) fn wanted(&self) -> *const f32 {
        self.data.wrapping_offset(self.beside)
    }
}

//! One description per table, from which its SQL, its rows in Rust and its documentation follow.

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Row, Statement};

use crate::value::Value;

/// A table or a view, as [`tables!`] describes it.
pub(crate) struct Description {
    pub(crate) name: &'static str,
    /// Lines of Markdown.
    pub(crate) text: &'static [&'static str],
    pub(crate) columns: &'static [Column],
    /// Columns that are unique together.
    pub(crate) unique: &'static [&'static str],
    /// The query of a view.
    pub(crate) view: Option<&'static str>,
}

pub(crate) struct Column {
    name: &'static str,
    meaning: &'static str,
    sort: Sort,
    sql_type: &'static str,
    nullable: bool,
    references: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    /// The row id.
    Key,
    Plain,
    /// A column that older recordings lack. Such columns are in the order in which they were added: an older recording has
    /// only the first few, or none.
    Newer,
}

impl Column {
    pub(crate) const fn of<T: Value>(sort: Sort, name: &'static str, meaning: &'static str) -> Self {
        Self { name, meaning, sort, sql_type: T::TYPE, nullable: T::NULLABLE, references: T::REFERENCES }
    }

    fn declaration(&self, table: &str) -> String {
        let constraint = match self.sort {
            Sort::Key => " PRIMARY KEY",
            Sort::Plain | Sort::Newer if self.nullable => "",
            Sort::Plain | Sort::Newer => " NOT NULL",
        };
        // A key is not a reference to itself.
        let refers = !self.references.is_empty() && (self.sort != Sort::Key || self.references != table);
        let references = if refers { format!(" REFERENCES {}", self.references) } else { String::new() };
        format!("{} {}{constraint}{references}", self.name, self.sql_type)
    }
}

impl Description {
    /// The names of the columns of one sort.
    pub(crate) fn names(&self, sort: Sort) -> Vec<&'static str> {
        self.columns.iter().filter(|column| column.sort == sort).map(|column| column.name).collect()
    }

    /// The SQL that creates it.
    pub(crate) fn create(&self) -> String {
        if let Some(query) = self.view {
            return format!("CREATE VIEW {} ({}) AS\n{query};", self.name, self.names(Sort::Plain).join(", "));
        }
        let columns = self.columns.iter().map(|column| column.declaration(self.name));
        let unique = (!self.unique.is_empty()).then(|| format!("UNIQUE ({})", self.unique.join(", ")));
        let parts: Vec<String> = columns.chain(unique).collect();
        format!("CREATE TABLE {} (\n    {}\n);", self.name, parts.join(",\n    "))
    }

    /// The table's section of docs/recording.md.
    pub(crate) fn document(&self) -> String {
        let lines: String = self.text.iter().map(|line| format!("{}\n", line.trim())).collect();
        let text = if lines.is_empty() { lines } else { lines + "\n" };
        let columns = self.columns.iter().map(|column| format!("| `{}` | {} |\n", column.name, column.meaning));
        format!("### {}\n{text}| Column | Meaning |\n|---|---|\n{}", self.name, columns.collect::<String>())
    }
}

/// A type whose values are rows of a table.
pub(crate) trait Table: Sized {
    const TABLE: Description;
    /// The statement that inserts a row.
    const INSERT: &'static str;

    fn read(cells: Cells<'_>) -> Option<Self>;

    /// Runs [`Self::INSERT`].
    fn insert_with(&self, insert: &mut Statement<'_>) -> rusqlite::Result<()>;

    fn insert(&self, connection: &Connection) -> rusqlite::Result<()> {
        self.insert_with(&mut *connection.prepare_cached(Self::INSERT)?)
    }
}

/// The values of a row in order: the row id, then the columns other than the key.
pub(crate) struct Cells<'r> {
    row: &'r Row<'r>,
    next: usize,
}

impl<'r> Cells<'r> {
    pub(crate) fn of(row: &'r Row<'r>) -> Self {
        Self { row, next: 1 }
    }

    pub(crate) fn key<T: Value>(&self) -> Option<T> {
        T::read(self.row.get_ref(0).ok()?)
    }

    pub(crate) fn plain<T: Value>(&mut self) -> Option<T> {
        let value = self.row.get_ref(self.next).ok()?;
        self.next += 1;
        T::read(value)
    }

    /// The inner `None` stands for a recording without the column.
    pub(crate) fn newer<T: Value>(&mut self) -> Option<Option<T>> {
        if self.row.get_ref(self.next).is_ok() { self.plain().map(Some) } else { Some(None) }
    }
}

/// Runs a statement with these parameters. They are bound one by one, because `execute` copies an array first, which takes a
/// tenth of the time of an insert.
pub(crate) fn run(statement: &mut Statement<'_>, values: &[ValueRef<'_>]) -> rusqlite::Result<()> {
    for (value, index) in values.iter().zip(1..) {
        statement.raw_bind_parameter(index, ToSqlOutput::Borrowed(*value))?;
    }
    statement.raw_execute().map(|_| ())
}

/// Describes tables: makes the types of their rows, and `TABLES`, from which they are created and documented.
///
/// ```text
/// tables! {
///     /// The table's text in docs/recording.md.
///     #[insert(OR IGNORE)]
///     #[unique(process, tid)]
///     #[upsert(named: process, tid => name)]
///     ThreadRow in "threads" {
///         #[key] id: Type = "meaning",
///         field: Type = "meaning",
///         field as "column": Type = "meaning",
///         #[sparse] { field: Type = "meaning", }
///         #[newer] field: Type = "meaning",
///     }
/// }
/// ```
///
/// - `#[insert]`: a conflict clause for the statement that inserts a row.
/// - `#[unique]`: columns that are unique together.
/// - `#[upsert]`: a method that inserts a row with these columns only, or updates those after the arrow if the row exists.
/// - `#[key]`: the row id, if other tables refer to it.
/// - `#[sparse]`: columns that are NULL in most rows. `RowType::of` takes the other columns and leaves these empty.
/// - `#[newer]`: a column that older recordings lack, where its value is `None`. Add further ones at the end.
/// - `#[model]`, before all others: the row type is one of the model's.
/// - `#[view("query")]`, alone: a view, which has no row type in Rust.
macro_rules! tables {
    ($($(#[$($attribute:tt)*])* $row:ident in $table:literal $columns:tt)*) => {
        pub(crate) const TABLES: &[$crate::table::Description] = {
            use $crate::table::Table;
            &[$($row::TABLE),*]
        };
        $($crate::table::table! { $(#[$($attribute)*])* $row in $table $columns })*
    };
}
pub(crate) use tables;

/// One of [`tables!`].
macro_rules! table {
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $name:literal) => { $name };
    (@mark $column:ident) => { ", ?" };
    (@marks $first:ident $($rest:ident)*) => { concat!("?" $(, $crate::table::table!(@mark $rest))*) };
    (
        @row $row:ident {
            $(#[key] $key:ident: $key_type:ty = $key_text:literal,)?
            $($field:ident $(as $name:literal)?: $type:ty = $meaning:literal,)*
            $(#[newer] $newer:ident $(as $newer_name:literal)?: $newer_type:ty = $newer_text:literal,)*
        }
    ) => {
        struct $row {
            $($key: $key_type,)?
            $($field: $type,)*
            $($newer: Option<$newer_type>,)*
        }
    };
    (
        @table $(#[doc = $text:literal])*
        $(#[insert($($or:tt)*)])?
        $(#[unique($($unique:ident),+)])?
        $(#[upsert($upsert:ident: $($on:ident),+ => $($set:ident),+)])*
        $row:ident in $table:literal {
            $(#[key] $key:ident: $key_type:ty = $key_text:literal,)?
            $($field:ident $(as $name:literal)?: $type:ty = $meaning:literal,)*
            $(#[newer] $newer:ident $(as $newer_name:literal)?: $newer_type:ty = $newer_text:literal,)*
        }
    ) => {
        impl $crate::table::Table for $row {
            const TABLE: $crate::table::Description = $crate::table::Description {
                name: $table,
                text: &[$($text),*],
                columns: {
                    use $crate::table::{Column, Sort, table};
                    &[
                        $(Column::of::<$key_type>(Sort::Key, table!(@name $key), $key_text),)?
                        $(Column::of::<$type>(Sort::Plain, table!(@name $field $($name)?), $meaning),)*
                        $(Column::of::<$newer_type>(Sort::Newer, table!(@name $newer $($newer_name)?), $newer_text),)*
                    ]
                },
                unique: &[$($(stringify!($unique)),+)?],
                view: None,
            };

            const INSERT: &'static str = concat!(
                "INSERT ", $(stringify!($($or)*), " ",)? "INTO ", $table, " VALUES (",
                $crate::table::table!(@marks $($key)? $($field)* $($newer)*), ")"
            );

            fn read(mut cells: $crate::table::Cells<'_>) -> Option<Self> {
                Some(Self {
                    $($key: cells.key()?,)?
                    $($field: cells.plain()?,)*
                    $($newer: cells.newer()?,)*
                })
            }

            fn insert_with(&self, insert: &mut rusqlite::Statement<'_>) -> rusqlite::Result<()> {
                use $crate::value::Value;
                $crate::table::run(insert, &[$(self.$key.bind(),)? $(self.$field.bind(),)* $(self.$newer.bind(),)*])
            }
        }

        $(
            impl $row {
                fn $upsert(&self, connection: &rusqlite::Connection) -> rusqlite::Result<()> {
                    use $crate::value::Value;
                    let sql = concat!(
                        "INSERT INTO ", $table, " (", stringify!($($on,)+ $($set),+), ") VALUES (",
                        $crate::table::table!(@marks $($on)+ $($set)+), ") ON CONFLICT (", stringify!($($on),+),
                        ") DO UPDATE SET ", stringify!($($set = excluded.$set),+)
                    );
                    let mut statement = connection.prepare_cached(sql)?;
                    $crate::table::run(&mut statement, &[$(self.$on.bind(),)+ $(self.$set.bind(),)+])
                }
            }
        )*
    };
    (
        $(#[doc = $text:literal])*
        #[view($query:literal)]
        $view:ident in $name:literal { $($column:ident: $type:ty = $meaning:literal,)* }
    ) => {
        enum $view {}

        impl $view {
            const TABLE: $crate::table::Description = $crate::table::Description {
                name: $name,
                text: &[$($text),*],
                columns: {
                    use $crate::table::{Column, Sort};
                    &[$(Column::of::<$type>(Sort::Plain, stringify!($column), $meaning)),*]
                },
                unique: &[],
                view: Some($query),
            };
        }
    };
    (
        $(#[$($attribute:tt)*])*
        $row:ident in $table:literal {
            $(#[key] $key:ident: $key_type:ty = $key_text:literal,)?
            $($field:ident $(as $name:literal)?: $type:ty = $meaning:literal,)*
            #[sparse] {
                $($sparse:ident $(as $sparse_name:literal)?: $sparse_type:ty = $sparse_meaning:literal,)*
            }
        }
    ) => {
        $crate::table::table! {
            $(#[$($attribute)*])*
            $row in $table {
                $(#[key] $key: $key_type = $key_text,)?
                $($field $(as $name)?: $type = $meaning,)*
                $($sparse $(as $sparse_name)?: Option<$sparse_type> = $sparse_meaning,)*
            }
        }

        impl $row {
            fn of($($key: $key_type,)? $($field: $type),*) -> Self {
                Self { $($key,)? $($field,)* $($sparse: None),* }
            }
        }
    };
    ($(#[doc = $text:literal])* #[model] $($rest:tt)*) => {
        $crate::table::table! { @table $(#[doc = $text])* $($rest)* }
    };
    ($(#[$($attribute:tt)*])* $row:ident in $table:literal $columns:tt) => {
        $crate::table::table! { @row $row $columns }
        $crate::table::table! { @table $(#[$($attribute)*])* $row in $table $columns }
    };
}
pub(crate) use table;

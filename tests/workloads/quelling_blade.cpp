// The parts of quelling_blade's extension module that pyobs uses: the names, layout and calling conventions of its
// functions and structures, a tail call where it has one, and its defect: a context that objects escape from leaves its
// arena on the stack. It also counts what it does.
#include <Python.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace qb {
static long made, freed, slabs_made, born, dead;
// Whether a context releases its arena even if objects escape.
static bool fixed = false;

struct slab {
    explicit slab(std::size_t bytes) : memory(static_cast<char*>(std::malloc(bytes))) { ++slabs_made; }
    slab(slab&& other) noexcept : memory(std::exchange(other.memory, nullptr)), used(other.used) {}
    ~slab() { std::free(memory); }
    char* memory;
    std::size_t used = 0;
};

struct arena {
    explicit arena(std::size_t bytes) : slab_size(bytes) { ++made; }
    ~arena() { ++freed; }
    void* allocate(std::size_t bytes) {
        if (slabs.empty() || slabs.back().used + bytes > slab_size) {
            slabs.emplace_back(slab_size);
        }
        slab& last = slabs.back();
        last.used += bytes;
        return last.memory + last.used - bytes;
    }
    std::vector<slab> slabs;
    std::size_t slab_size;
    long alive = 0;
};

static std::vector<std::shared_ptr<arena>>& stack() {
    static std::vector<std::shared_ptr<arena>> arenas;
    return arenas;
}

struct object {
    PyObject_HEAD
    std::shared_ptr<arena> owner;
};
static_assert(sizeof(object) == 32, "the arena at 16, the control block at 24");

struct context {
    PyObject_HEAD
    bool popped;
    std::vector<PyTypeObject*> cls;
    std::size_t slab_size;
};
static_assert(sizeof(context) == 56, "popped at 16, the size of a slab at 48");

namespace arena_allocatable_methods {
PyObject* new_(PyTypeObject* cls, PyObject*, PyObject*) {
    std::shared_ptr<arena> owner = stack().empty() ? nullptr : stack().back();
    void* memory = owner ? owner->allocate(sizeof(object)) : PyObject_Malloc(sizeof(object));
    object* self = static_cast<object*>(memory);
    PyObject_Init(reinterpret_cast<PyObject*>(self), cls);
    if (owner) {
        ++born;
        ++owner->alive;
    }
    new (&self->owner) std::shared_ptr<arena>(std::move(owner));
    return reinterpret_cast<PyObject*>(self);
}

void dealloc(PyObject* object_) {
    object* self = reinterpret_cast<object*>(object_);
    std::shared_ptr<arena> owner = std::move(self->owner);
    if (!owner) {
        PyObject_Free(self);
        return;
    }
    ++dead;
    --owner->alive;
}
}  // namespace arena_allocatable_methods

// A pointer that is passed by value.
template <typename T>
class borrowed_ref {
  public:
    borrowed_ref(T* ref) : ref(ref) {}
    T* operator->() const { return ref; }

  private:
    T* ref;
};

namespace arena_context_methods {
// The real one has a stack of arenas for each type.
PyObject* new_(PyTypeObject* cls, PyObject* args, PyObject* kwargs) {
    static const char* const keywords[] = {"types", "slab_size", nullptr};
    PyObject* types;
    Py_ssize_t slab_size = 1 << 16;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|n:Arena", const_cast<char**>(keywords), &types, &slab_size)) {
        return nullptr;
    }
    context* self = PyObject_New(context, cls);
    self->popped = false;
    new (&self->cls) std::vector<PyTypeObject*>();
    self->slab_size = static_cast<std::size_t>(slab_size);
    stack().push_back(std::make_shared<arena>(self->slab_size));
    return reinterpret_cast<PyObject*>(self);
}

int close_impl(borrowed_ref<context> self) {
    if (self->popped || stack().empty()) {
        return 0;
    }
    long alive = stack().back()->alive;
    if (alive > 0 && !fixed) {
        return PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "%ld object%s still alive at arena exit", alive, alive != 1 ? "s are" : " is");
    }
    stack().pop_back();
    self->popped = true;
    return 0;
}

PyObject* close(PyObject* self, PyObject*) {
    context* own = reinterpret_cast<context*>(self);
    if (own->popped) {
        PyErr_SetString(PyExc_RuntimeError, "arena context was already closed");
        return nullptr;
    }
    if (close_impl(own)) {
        return nullptr;
    }
    Py_RETURN_NONE;
}

PyObject* enter(PyObject* self, PyObject*) {
    Py_INCREF(self);
    return self;
}

PyObject* exit(PyObject* self, PyObject*) { return close(self, nullptr); }

void dealloc(PyObject* self) {
    context* own = reinterpret_cast<context*>(self);
    if (close_impl(own)) {
        PyErr_WriteUnraisable(self);
    }
    own->cls.~vector();
    PyObject_Free(self);
}
}  // namespace arena_context_methods

static PyMethodDef context_methods[] = {
    {"close", arena_context_methods::close, METH_NOARGS, nullptr},
    {"__enter__", arena_context_methods::enter, METH_NOARGS, nullptr},
    {"__exit__", arena_context_methods::exit, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

static PyObject* set_fixed(PyObject*, PyObject* value) {
    fixed = PyObject_IsTrue(value) == 1;
    Py_RETURN_NONE;
}

static PyObject* counts(PyObject*, PyObject*) {
    return Py_BuildValue("{slslslslsl}", "made", made, "freed", freed, "slabs", slabs_made, "born", born, "dead", dead);
}

static PyMethodDef functions[] = {
    {"set_fixed", set_fixed, METH_O, nullptr},
    {"counts", counts, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "arena_allocatable", nullptr, -1, functions,
                                 nullptr, nullptr, nullptr, nullptr};
static PyTypeObject node = {PyVarObject_HEAD_INIT(nullptr, 0)};
static PyTypeObject arena_context = {PyVarObject_HEAD_INIT(nullptr, 0)};

static void add(PyObject* module, const char* name, PyTypeObject* type) {
    PyType_Ready(type);
    Py_INCREF(type);
    PyModule_AddObject(module, name, reinterpret_cast<PyObject*>(type));
}
}  // namespace qb

PyMODINIT_FUNC PyInit_arena_allocatable() {
    using namespace qb;
    node.tp_name = "quelling_blade.arena_allocatable.Node";
    node.tp_basicsize = sizeof(object);
    node.tp_flags = Py_TPFLAGS_DEFAULT;
    node.tp_new = arena_allocatable_methods::new_;
    node.tp_dealloc = arena_allocatable_methods::dealloc;
    arena_context.tp_name = "quelling_blade.arena_allocatable.Arena";
    arena_context.tp_basicsize = sizeof(context);
    arena_context.tp_flags = Py_TPFLAGS_DEFAULT;
    arena_context.tp_new = arena_context_methods::new_;
    arena_context.tp_dealloc = arena_context_methods::dealloc;
    arena_context.tp_methods = context_methods;
    PyObject* module = PyModule_Create(&definition);
    if (module != nullptr) {
        add(module, "Node", &node);
        add(module, "Arena", &arena_context);
    }
    return module;
}

/* Accesses of memory whose redundancy the caller decides. */

double load_all(const double *values, long count)
{
    double sum = 0;
    for (long i = 0; i < count; i++)
        sum += values[i];
    return sum;
}

void store_all(double *values, long count, double value)
{
    for (long i = 0; i < count; i++)
        values[i] = value;
}

/* What stages pass on, as a list of matrices and back: matrices go as they are, numbers and vectors of plain structs as bytes. */
#ifndef PANORAMA_PACK_HPP
#define PANORAMA_PACK_HPP

#include "stages.hpp"
#include <cstring>
#include <string>
#include <type_traits>

namespace panorama {

class Packer
{
  public:
    /* The first matrix has the numbers, the others follow in order. */
    std::vector<cv::Mat> mats{cv::Mat()};

    void done()
    {
        mats[0] = cv::Mat(1, static_cast<int>(numbers.size()), CV_8U, numbers.data()).clone();
    }

    template <class T> void number(const T &value)
    {
        static_assert(std::is_arithmetic<T>::value, "a number");
        const uchar *bytes = reinterpret_cast<const uchar *>(&value);
        numbers.insert(numbers.end(), bytes, bytes + sizeof value);
    }

    void mat(const cv::Mat &mat)
    {
        number(mat.empty());
        if (!mat.empty())
            mats.push_back(mat);
    }

    void mat(const cv::UMat &mat)
    {
        this->mat(mat.empty() ? cv::Mat() : mat.getMat(cv::ACCESS_READ));
    }

    template <class T> void plain(const std::vector<T> &values)
    {
        const int bytes = static_cast<int>(values.size() * sizeof(T));
        mat(values.empty() ? cv::Mat() : cv::Mat(1, bytes, CV_8U, const_cast<T *>(values.data())));
    }

    template <class T, class Each> void list(const std::vector<T> &values, Each each)
    {
        number(values.size());
        for (const T &value : values)
            each(*this, value);
    }

  private:
    std::vector<uchar> numbers;
};

class Unpacker
{
  public:
    explicit Unpacker(const std::vector<cv::Mat> &from) : mats(from)
    {
        need(!mats.empty() && mats[0].type() == CV_8U && mats[0].dims == 2 && mats[0].rows == 1);
        mats[0].copyTo(numbers); /* read once: its sender can change it */
    }

    template <class T> void number(T &value)
    {
        need(sizeof value <= numbers.total() - at);
        std::memcpy(&value, numbers.data + at, sizeof value);
        at += sizeof value;
    }

    void mat(cv::Mat &mat)
    {
        uchar empty = 0;

        number(empty);
        if (empty == 0) {
            need(next < mats.size());
            mat = mats[next++];
        }
    }

    void mat(cv::UMat &mat)
    {
        cv::Mat it;

        this->mat(it);
        if (!it.empty())
            mat = it.getUMat(cv::ACCESS_READ);
    }

    template <class T> void plain(std::vector<T> &values)
    {
        cv::Mat it;

        mat(it);
        if (it.empty())
            return;
        need(it.type() == CV_8U && it.dims == 2 && it.rows == 1 && it.total() % sizeof(T) == 0);
        values.resize(it.total() / sizeof(T));
        for (size_t i = 0; i < values.size(); i++)
            std::memcpy(static_cast<void *>(&values[i]), it.data + i * sizeof(T), sizeof(T));
    }

    template <class T, class Each> void list(std::vector<T> &values, Each each)
    {
        size_t count = 0;

        number(count);
        need(count <= 4096);
        values.resize(count);
        for (T &value : values)
            each(*this, value);
    }

  private:
    static void need(bool holds)
    {
        if (!holds)
            CV_Error(cv::Error::StsParseError, "a message has not the parts of its kind");
    }

    std::vector<cv::Mat> mats;
    cv::Mat numbers;
    size_t at = 0, next = 1;
};

/* The fields of each kind, for both directions: a packer only reads the values, an unpacker sets them. */

template <class P, class T> using Given = std::conditional_t<std::is_same<P, Packer>::value, const T, T>;

template <class P, class V> void mats_of(P &with, V &mats)
{
    with.list(mats, [](auto &each_with, auto &mat) { each_with.mat(mat); });
}

template <class P> void fields(P &with, Given<P, Photos> &of)
{
    mats_of(with, of.images);
}

template <class P> void fields(P &with, Given<P, Found> &of)
{
    with.number(of.scale);
    with.list(of.features, [](auto &each_with, auto &each) {
        each_with.number(each.img_idx);
        each_with.number(each.img_size.width);
        each_with.number(each.img_size.height);
        each_with.plain(each.keypoints);
        each_with.mat(each.descriptors);
    });
}

template <class P> void fields(P &with, Given<P, Small> &of)
{
    with.number(of.scale);
    mats_of(with, of.images);
}

template <class P> void fields(P &with, Given<P, Matched> &of)
{
    with.list(of.pairs, [](auto &each_with, auto &each) {
        each_with.number(each.src_img_idx);
        each_with.number(each.dst_img_idx);
        each_with.plain(each.matches);
        each_with.plain(each.inliers_mask);
        each_with.number(each.num_inliers);
        each_with.mat(each.H);
        each_with.number(each.confidence);
    });
}

template <class P> void fields(P &with, Given<P, Cameras> &of)
{
    with.number(of.scale);
    with.list(of.cameras, [](auto &each_with, auto &each) {
        each_with.number(each.focal);
        each_with.number(each.aspect);
        each_with.number(each.ppx);
        each_with.number(each.ppy);
        each_with.mat(each.R);
        each_with.mat(each.t);
    });
}

template <class P> void fields(P &with, Given<P, Warped> &of)
{
    with.plain(of.corners);
    mats_of(with, of.images);
    mats_of(with, of.masks);
}

template <class P> void fields(P &with, Given<P, Placed> &of)
{
    with.plain(of.corners);
    mats_of(with, of.masks);
}

template <class P> void fields(P &with, Given<P, Exposed> &of)
{
    mats_of(with, of.images);
}

template <class P> void fields(P &with, Given<P, Seams> &of)
{
    mats_of(with, of.masks);
}

template <class P> void fields(P &with, Given<P, Picture> &of)
{
    with.mat(of.image);
}

} // namespace panorama

#endif
